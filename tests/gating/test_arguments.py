"""Engine arguments as people commit them, read as vLLM and lm-eval read them.

What vLLM makes of these words was asked of 0.28's own parser (test_real_flags asks it again).
"""

import pytest

from chunkscope.errors import InputError
from chunkscope.gating.read_arguments import from_model_args, from_words, from_yaml, read_arguments
from chunkscope.vllm.enums import Entry

V28 = (0, 28, 0)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("--max-num-batched-tokens 4096", {"max_num_batched_tokens": 4096}, id="apart"),
        pytest.param("--max-num-batched-tokens=4K", {"max_num_batched_tokens": 4096}, id="joined"),
        pytest.param("--max-model-len 2.5k", {"max_model_len": 2500}, id="decimal thousands"),
        pytest.param(
            "--max_num_batched_tokens 64", {"max_num_batched_tokens": 64}, id="underscores"
        ),
        pytest.param(
            "--max-num-seqs 8 --max-num-seqs 16", {"max_num_seqs": 16}, id="the last wins"
        ),
        pytest.param(
            "--no-enable-chunked-prefill", {"enable_chunked_prefill": False}, id="a switch"
        ),
        pytest.param("--max-model-len auto", {}, id="left to vLLM"),
        pytest.param("--max-model-len -1", {}, id="left to vLLM, by number"),
        pytest.param("--max-model-len 8 --max-model-len auto", {}, id="taken back"),
        pytest.param("-tp 2", {"tensor_parallel_size": 2}, id="a short name"),
        pytest.param("--gpu-memory-utilization 0.85", {"gpu_memory_utilization": 0.85}, id="share"),
        pytest.param("vllm serve org/model --max-num-seqs 8", {"max_num_seqs": 8}, id="a command"),
        pytest.param("org/m \\\n  --max-num-seqs 8 # few\n", {"max_num_seqs": 8}, id="lines"),
        pytest.param("--port 1 --api-key a b --max-num-seqs 8", {"max_num_seqs": 8}, id="others"),
        pytest.param("--max-num-b 256", {"max_num_batched_tokens": 256}, id="an abbreviation"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_words_are_read_as_vllm_reads_them(text, values):
    read = from_words(text, V28)
    assert read.settings.given() == values
    assert not read.refusals
    assert read.entry is Entry.SERVE


@pytest.mark.parametrize(
    "script",
    [
        "CUDA_VISIBLE_DEVICES=0 vllm serve org/m --max-num-seqs 8",
        "VLLM_USE_V1=1 exec vllm serve org/m --max-num-seqs 8",
        "#!/bin/sh\nset -e\nexport HF_HOME=/cache\nvllm serve org/m \\\n  --max-num-seqs 8\n",
        "vllm serve org/m --max-num-seqs 8 2>&1 | tee log",
        "vllm serve org/m --max-num-seqs 8 > log &",
        "python3 -m vllm.entrypoints.openai.api_server --model org/m --max-num-seqs 8",
    ],
)
def test_of_a_start_script_the_command_that_starts_vllm_is_read(tmp_path, script):
    path = tmp_path / "start.sh"
    path.write_text(script)
    read = read_arguments(path, V28)
    assert (read.model, read.settings.given(), read.refusals) == ("org/m", {"max_num_seqs": 8}, ())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("--enable-chunked-prefill false", id="a switch with a value"),
        pytest.param("--enable-chunked-prefill=False", id="joined"),
        pytest.param("--max-num-seqs 1K", id="no suffix there"),
        pytest.param("--max-model-len 2.5K", id="half a binary thousand"),
        pytest.param("--max-model-len 8,192", id="a comma"),
        pytest.param("--gpu-memory-utilization 90%", id="per cent"),
        pytest.param("--gpu-memory-utilization nan", id="not a number"),
        pytest.param("--gpu-memory-utilization 1e999", id="endless"),
        pytest.param(f"--max-num-seqs {'9' * 400}", id="hundreds of digits"),
        pytest.param("--max-num-seqs", id="no value"),
        pytest.param("--max-num-seqs --enable-chunked-prefill", id="a flag instead"),
        pytest.param("--max-num 64", id="cut too short"),
        pytest.param("--Max-Num-Seqs 2", id="case"),
        pytest.param("--bogus-flag-xyz 3", id="nobody's"),
        pytest.param("--scheduling-policy x", id="no choice"),
        pytest.param("--eplb-config x", id="no JSON"),
        pytest.param("--help", id="help"),
    ],
)
def test_what_vllm_would_refuse_is_a_fault(text):
    assert from_words(text, V28).refusals


def test_yaml_is_turned_into_words_as_vllm_does():
    read = from_yaml(
        "model: org/m\nno-enable-chunked-prefill: true\nmax-model-len: 4K\nlora-modules: [a, b]\n"
        "hf-overrides: {a: 1}\nport: 8000",
        V28,
    )
    assert read.settings.given() == {"enable_chunked_prefill": False, "max_model_len": 4096}
    assert (read.refusals, read.model, read.harmless) == ((), "org/m", ("port",))
    assert read.others == {"lora_modules": "a b", "hf_overrides": "{}"}
    dropped = from_yaml("enable-chunked-prefill: false\nenforce-eager: false", V28)
    assert [refusal.argument for refusal in dropped.refusals] == ["enable_chunked_prefill"]


@pytest.mark.parametrize(
    ("text", "others", "harmless"),
    [
        ("--enforce-eager", {"enforce_eager": "true"}, ()),
        ("--no-enforce-eager --dtype auto", {}, {"enforce_eager", "dtype"}),
        ("--dtype=half -pp 8", {"dtype": "half", "pipeline_parallel_size": "8"}, ()),
        ("--config other.yaml", {"config": "other.yaml"}, ()),
        ("--who knows this", {"who": "knows this"}, ()),
    ],
)
def test_what_no_setting_stands_for_is_kept_as_it_is_written(text, others, harmless):
    read = from_words(text, V28)
    assert (read.others, {*read.harmless}) == (others, {*harmless})


@pytest.mark.parametrize(
    ("text", "version", "known"),
    [
        ("--block-size 3", (0, 17, 0), False),
        ("--block-size 3", (0, 18, 0), True),
        ("--max-model-len auto", (0, 13, 0), False),
        ("--max-model-len auto", (0, 14, 0), True),
        ("--swap-space 4", (0, 18, 0), False),
        ("--swap-space 4", (0, 17, 0), True),
    ],
)
def test_what_is_taken_depends_on_the_version(text, version, known):
    assert (not from_words(text, version).refusals) is known


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("pretrained=a/b,max_model_len=4096", {"max_model_len": 4096}),
        (
            "lm_eval --model vllm --model_args 'pretrained=a b,max_num_seqs=8' \\\n  --tasks t",
            {"max_num_seqs": 8},
        ),
        ("lm-eval run --model_args pretrained=a max_num_seqs=8 --tasks t", {"max_num_seqs": 8}),
        ("max_length=4096,\n max_batch_size=8", {"max_model_len": 4096, "max_num_seqs": 8}),
        (
            '{"max_model_len": 4096, "enable_chunked_prefill": false}',
            {"max_model_len": 4096, "enable_chunked_prefill": False},
        ),
    ],
)
def test_model_args_are_read_as_lm_eval_reads_them(text, values):
    read = from_model_args(text, V28)
    assert read.settings.given() == values
    assert read.entry is Entry.LLM
    assert read.defaults.given() == {"gpu_memory_utilization": 0.9}, "the harness has its own idea"


def test_model_args_that_neither_the_harness_nor_vllm_has_are_faults():
    text = "pretrained=m,dtype=auto,port=1,bogus=2,max_num_s=3,max_length=1,max_model_len=2"
    read = from_model_args(text, V28)
    faults = [refusal.argument for refusal in read.refusals]
    assert faults == ["max_length", "port", "bogus", "max_num_s"]
    assert (read.model, read.harmless) == ("m", ("dtype",))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("a.yaml", b"- 1", id="a list"),
        pytest.param("a.yaml", b"", id="empty"),
        pytest.param("a.yaml", b"a: [", id="broken YAML"),
        pytest.param("a.yaml", b"a: " + b"[" * 5000, id="endless nesting"),
        pytest.param("a.yaml", b"!!python/object:os.system {}", id="a program"),
        pytest.param("a.txt", b"--x 'open", id="an open quote"),
        pytest.param("a.txt", b"a=1,b", id="half a pair"),
        pytest.param("a.txt", b"{", id="broken JSON"),
        pytest.param("a.txt", b"\xff\xfe\x00", id="binary"),
        pytest.param("a.txt", None, id="missing"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path, name, data):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as error:
        read_arguments(tmp_path / name, V28)
    assert name in error.value.message


def test_the_form_can_be_said(tmp_path):
    (tmp_path / "args.conf").write_text("max-num-seqs: 8")
    read = read_arguments(tmp_path / "args.conf", V28, "vllm-yaml")
    assert read.settings.given() == {"max_num_seqs": 8}
