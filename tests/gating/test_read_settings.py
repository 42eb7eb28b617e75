"""Engine settings as people commit them, read as vLLM and lm-eval read them.

What vLLM makes of these words was asked of 0.28's own parser (test_real_serve asks it
again).
"""

import shlex

import pytest

from chunkscope.errors import InputError
from chunkscope.gating.read_settings import (
    from_flags,
    from_model_args,
    from_words,
    from_yaml,
    read_settings,
)
from chunkscope.vllm.enums import Entry

V28 = (0, 28, 0)
SEQS_8 = {"max_num_seqs": 8}

# -- a line of flags -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "values"),
    [
        pytest.param("--max-num-seqs 8", SEQS_8, id="two words"),
        pytest.param("--max-num-seqs=8", SEQS_8, id="one word"),
        pytest.param("--max_num_seqs 8", SEQS_8, id="underscores"),
        pytest.param("--max-num-se 8", SEQS_8, id="abbreviated"),
        pytest.param("--max-num-seqs 2 --max-num-seqs 8", SEQS_8, id="the last wins"),
        pytest.param(
            "--max-num-batched-tokens=4K", {"max_num_batched_tokens": 4096}, id="K"
        ),
        pytest.param("--max-model-len 2.5k", {"max_model_len": 2500}, id="k"),
        pytest.param(
            "--max-num-batched-tokens 2M", {"max_num_batched_tokens": 2 << 20}, id="M"
        ),
        pytest.param(
            "--gpu-memory-utilization 0.85",
            {"gpu_memory_utilization": 0.85},
            id="a share",
        ),
        pytest.param("-tp 2", {"tensor_parallel_size": 2}, id="short name"),
        pytest.param(
            "--no-enable-chunked-prefill", {"enable_chunked_prefill": False}, id="off"
        ),
        pytest.param("--max-model-len auto", {}, id="auto"),
        pytest.param("--max-model-len -1", {}, id="auto as a number"),
        pytest.param("--max-model-len 8 --max-model-len auto", {}, id="auto wins"),
        pytest.param(
            "--port 1 --api-key a b --max-num-seqs 8", SEQS_8, id="several values"
        ),
        pytest.param("--api-key 'a;b' --max-num-seqs 8", SEQS_8, id="quoted"),
        pytest.param("--api-key a#b --max-num-seqs 8", SEQS_8, id="# inside a word"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_flags_are_read_as_vllm_reads_them(line, values):
    committed = from_flags(line, V28)
    assert committed.refusals == ()
    assert committed.settings.given() == values
    assert committed.entry is Entry.SERVE


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("org/m --max-num-seqs 8", id="the model first"),
        pytest.param("--model org/m --max-num-seqs 8", id="--model"),
        pytest.param("vllm serve org/m --max-num-seqs 8", id="the command"),
        pytest.param("org/m\n--max-num-seqs\n8\n", id="several lines"),
        pytest.param("vllm serve org/m \\\n  --max-num-seqs 8\n", id="joined lines"),
    ],
)
def test_a_line_may_name_the_model_and_the_command(text):
    committed = from_flags(text, V28)
    assert committed.refusals == ()
    assert committed.model == "org/m"
    assert committed.settings.given() == SEQS_8


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("--enable-chunked-prefill=False", id="a switch with a value"),
        pytest.param("--max-num-seqs 1K", id="K where vLLM takes digits only"),
        pytest.param("--max-model-len 2.5K", id="a fraction before K"),
        pytest.param("--max-model-len 8,192", id="a comma"),
        pytest.param("--gpu-memory-utilization 90%", id="percent"),
        pytest.param("--gpu-memory-utilization nan", id="no number"),
        pytest.param(f"--max-num-seqs {'9' * 400}", id="endless"),
        pytest.param("--max-num-seqs", id="no value"),
        pytest.param("--max-num-seqs --enforce-eager", id="a flag as a value"),
        pytest.param("--max-num 64", id="abbreviated to two flags"),
        pytest.param("--Max-Num-Seqs 2", id="capitals"),
        pytest.param("--bogus-flag-xyz 3", id="unknown"),
        pytest.param("--scheduling-policy x", id="not one of its choices"),
        pytest.param("--eplb-config x", id="no JSON"),
        pytest.param("--help", id="help"),
        pytest.param("org/m -- stray", id="a stray word"),
        pytest.param("org/m --model other", id="two models"),
        pytest.param("--max-num-seqs 8 # few", id="a comment, which vLLM has not"),
    ],
)
def test_what_vllm_would_refuse_is_a_refusal(line):
    assert from_flags(line, V28).refusals


@pytest.mark.parametrize(
    ("line", "others"),
    [
        pytest.param("--enforce-eager", {"enforce_eager": "true"}, id="a switch"),
        pytest.param("--no-enforce-eager --dtype auto", {}, id="defaults"),
        pytest.param("--port 80 --api-key a", {}, id="harmless"),
        pytest.param("-O3", {"optimization_level": "3"}, id="glued"),
        pytest.param(
            "--dtype=half -pp 8",
            {"dtype": "half", "pipeline_parallel_size": "8"},
            id="values",
        ),
        pytest.param("--config other.yaml", {"config": "other.yaml"}, id="a file"),
        pytest.param("--config=other.yaml", {"config": "other.yaml"}, id="--config="),
        pytest.param("--who knows this", {"who": "knows this"}, id="unknown"),
        pytest.param("-cc.mode=0", {"compilation_config": "0"}, id="a key of JSON"),
        pytest.param(
            "--hf-overrides.num_layers 1",
            {"hf_overrides": "1"},
            id="a key with its value behind it",
        ),
    ],
)
def test_what_no_setting_stands_for_is_kept_as_it_is_written(line, others):
    assert from_flags(line, V28).others == others


@pytest.mark.parametrize(
    ("line", "version", "is_refused"),
    [
        pytest.param("--max-model-len auto", (0, 13, 0), True, id="before auto"),
        pytest.param("--max-model-len auto", (0, 14, 0), False, id="since auto"),
        pytest.param("--swap-space 4", (0, 17, 0), False, id="before its end"),
        pytest.param("--swap-space 4", (0, 18, 0), True, id="after its end"),
    ],
)
def test_what_is_taken_depends_on_the_version(line, version, is_refused):
    assert bool(from_flags(line, version).refusals) is is_refused


def test_an_unknown_flag_is_told_with_the_known_one_that_looks_like_it():
    (refusal,) = from_words(shlex.split("--max-num-seq-s 3"), V28).refusals
    assert (refusal.argument, refusal.code) == ("max_num_seq_s", "argument_unknown")
    assert refusal.values["alike"] == ["max-num-seqs"]


# -- vLLM's YAML -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("max-num-seqs: 8", SEQS_8, id="dashes"),
        pytest.param("max_num_seqs: 8", SEQS_8, id="underscores"),
        pytest.param("max-model-len: 4K", {"max_model_len": 4096}, id="K"),
        pytest.param(
            "no-enable-chunked-prefill: true",
            {"enable_chunked_prefill": False},
            id="a switch that is off",
        ),
        pytest.param("enforce-eager: false\nport: 80", {}, id="what is off anyway"),
        pytest.param("lora-modules: []\nmax-num-seqs: 8", SEQS_8, id="an empty list"),
        pytest.param("{}", {}, id="nothing"),
    ],
)
def test_yaml_is_read_as_vllm_reads_it(text, values):
    committed = from_yaml(text, V28)
    assert committed.refusals == ()
    assert committed.settings.given() == values


def test_yaml_may_name_the_model_and_hold_lists_and_nested_values():
    text = "model: org/m\nlora-modules: [a, b]\nhf-overrides: {a: 1}"
    committed = from_yaml(text, V28)
    assert committed.model == "org/m"
    assert committed.others == {"lora_modules": "a b", "hf_overrides": "{}"}


def test_a_false_that_vllm_drops_is_a_refusal():
    (refusal,) = from_yaml("enable-chunked-prefill: false", V28).refusals
    assert refusal.code == "argument_dropped"
    assert refusal.values["instead"] == "enable-chunked-prefill"


# -- lm-eval's model_args --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("pretrained=a/b,max_num_seqs=8", SEQS_8, id="vLLM's name"),
        pytest.param("max_batch_size=8", SEQS_8, id="lm-eval's name"),
        pytest.param("max_length=4096", {"max_model_len": 4096}, id="another"),
        pytest.param("dtype=auto,\n max_num_seqs=8\n", SEQS_8, id="several lines"),
        pytest.param("max_num_seqs=2,max_num_seqs=8", SEQS_8, id="the last wins"),
        pytest.param(
            "enable_chunked_prefill=True", {"enable_chunked_prefill": True}, id="on"
        ),
        pytest.param(
            "enable_chunked_prefill=false", {"enable_chunked_prefill": False}, id="off"
        ),
        pytest.param("enforce_eager=0", {}, id="off as it is anyway"),
    ],
)
def test_model_args_are_read_as_lm_eval_reads_them(text, values):
    committed = from_model_args(text, V28)
    assert committed.refusals == ()
    assert committed.settings.given() == values
    assert committed.others == {}


def test_lm_eval_starts_the_llm_class_with_a_default_of_its_own():
    committed = from_model_args("dtype=auto", V28)
    assert committed.entry is Entry.LLM
    assert committed.defaults.given() == {"gpu_memory_utilization": 0.9}


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        pytest.param("port=1", "port", id="of the server"),
        pytest.param("bogus=2", "bogus", id="unknown"),
        pytest.param("max_num_s=3", "max_num_s", id="abbreviated"),
        pytest.param("max_length=1,max_model_len=2", "max_length", id="twice"),
        pytest.param("max_model_len=4K", "max_model_len", id="4K"),
        pytest.param("max_model_len=auto", "max_model_len", id="auto"),
    ],
)
def test_model_args_that_neither_lm_eval_nor_vllm_takes_are_refused(text, argument):
    refusals = from_model_args(text, V28).refusals
    assert [refusal.argument for refusal in refusals] == [argument]


@pytest.mark.parametrize(
    ("text", "others"),
    [
        pytest.param("batch_size=auto:4,device=cpu", {}, id="of no effect"),
        pytest.param("batch_size=1", {"batch_size": "1"}, id="one at a time"),
        pytest.param("max_gen_toks=9", {"max_gen_toks": "9"}, id="shorter answers"),
    ],
)
def test_lm_evals_own_keys_count_where_they_change_the_run(text, others):
    assert from_model_args(text, V28).others == others


# -- files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("vllm.yaml", "max-num-seqs: 8", "vllm-yaml"),
        ("VLLM.YML", "max-num-seqs: 8", "vllm-yaml"),
        ("args.txt", "--max-num-seqs 8", "vllm-args"),
        ("args.txt", "org/m --max-num-seqs=8", "vllm-args"),
        ("args.txt", "max_num_seqs=8", "lm-eval"),
    ],
)
def test_the_form_is_known_by_the_name_or_the_first_word(tmp_path, name, text, form):
    (tmp_path / name).write_text(text)
    committed = read_settings(tmp_path / name, V28)
    assert committed.form == form
    assert committed.settings.given() == SEQS_8


NOT_READ = {
    "script.sh": "#!/bin/sh\nexport A=1\nvllm serve org/m --max-num-seqs 8\n",
    "variable.sh": "vllm serve org/m --max-num-seqs $N",
    "command.sh": "vllm serve org/m --api-key `cat key`",
    "all-arguments.sh": 'vllm serve org/m "$@"',
    "two.sh": "vllm serve org/m --max-num-seqs 8 && vllm serve org/n",
    "options.sh": "set -e\nvllm serve org/m --max-num-seqs 8",
    "two-lines.sh": "cd serve\nvllm serve org/m --max-num-seqs 8",
    "pipe.sh": "vllm serve org/m --max-num-seqs 8 | tee log",
    "redirect.sh": "vllm serve org/m --max-num-seqs 8 2>&1",
    "background.sh": "vllm serve org/m --max-num-seqs 8 &",
    "environment.sh": "VLLM_USE_V1=1 vllm serve org/m --max-num-seqs 8",
    "docker.sh": "docker run vllm/vllm-openai --model org/m --max-num-seqs 8",
    "harness.sh": "lm_eval --model vllm --model_args a=1 --tasks t",
    "python.sh": "python -m vllm.entrypoints.openai.api_server --model org/m",
    "windows.sh": "vllm serve org/m \\\r\n--seed 1",
    "serve.py": "from vllm import LLM\nLLM('m', seed=1)",
    "Dockerfile": 'FROM vllm/vllm-openai\nCMD ["org/m", "--max-num-seqs", "8"]\n',
    "compose.yaml": "services: {a: {image: vllm/vllm-openai, command: --model m}}",
    "pod.yaml": "kind: Pod\nspec: {containers: [{args: [--max-num-seqs, '8']}]}",
    "two.yaml": "max-num-seqs: 8\n---\nmax-num-seqs: 8",
    "workflow.yaml": "jobs: {serve: {steps: [{run: vllm serve org/m}]}}",
    "list.yaml": "- 1",
    "empty.yaml": "",
    "open.yaml": "a: [",
    "deep.yaml": "a: " + "[" * 1000,
    "alias.yaml": "services: &a {b: *a}",
    "object.yaml": "!!python/object:os.system {}",
    "open.txt": "--x 'open",
    "pairs.txt": "a=1,b",
    "unnamed.txt": "a=1,=2",
}


@pytest.mark.parametrize("name", NOT_READ)
def test_anything_else_is_an_error_with_the_command_that_writes_the_yaml(
    tmp_path, name
):
    path = tmp_path / name
    path.write_text(NOT_READ[name], newline="")
    with pytest.raises(InputError) as error:
        read_settings(path, V28)
    assert name in error.value.message
    assert "chunkscope recommend --emit vllm-yaml > vllm.yaml" in error.value.hint


def test_a_file_that_is_missing_or_no_text_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "args.txt"
    with pytest.raises(InputError, match=r"args\.txt"):
        read_settings(path, V28)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"args\.txt"):
        read_settings(path, V28)
