"""Engine arguments as people commit them, read as vLLM and lm-eval read them.

What vLLM makes of these words was asked of 0.28's own parser.
"""

import pytest

from chunkscope.errors import InputError
from chunkscope.gating.committed import from_model_args, from_words, from_yaml, read_committed
from chunkscope.planning.emit import emit
from chunkscope.vllm.enums import Entry, Target
from chunkscope.vllm.flags import BY_NAME
from tests.build import LONG, MIXED, SHORT, plan

V28 = (0, 28, 0)
BATCH = BY_NAME["max_num_batched_tokens"].spelling
LENGTH = BY_NAME["max_model_len"].spelling
SEQS = BY_NAME["max_num_seqs"].spelling
CHUNKED = BY_NAME["enable_chunked_prefill"].spelling
NOT_CHUNKED = BY_NAME["enable_chunked_prefill"].off_spelling
SHARE = BY_NAME["gpu_memory_utilization"].spelling


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param(f"{BATCH} 4096", {"max_num_batched_tokens": 4096}, id="a word and a value"),
        pytest.param(f"{BATCH}=4096", {"max_num_batched_tokens": 4096}, id="joined"),
        pytest.param(f"{BATCH} 4K", {"max_num_batched_tokens": 4096}, id="binary thousands"),
        pytest.param(f"{LENGTH} 2.5k", {"max_model_len": 2500}, id="decimal thousands"),
        pytest.param(f"{BATCH} 8_192", {"max_num_batched_tokens": 8192}, id="as Python writes it"),
        pytest.param(
            BATCH.replace("-", "_").replace("__", "--", 1) + " 64",
            {"max_num_batched_tokens": 64},
            id="underscores",
        ),
        pytest.param(f"{SEQS} 8 {SEQS} 16", {"max_num_seqs": 16}, id="the last one wins"),
        pytest.param(NOT_CHUNKED, {"enable_chunked_prefill": False}, id="a switch"),
        pytest.param(f"{LENGTH} auto", {}, id="left to vLLM"),
        pytest.param(f"{LENGTH} -1", {}, id="left to vLLM, by number"),
        pytest.param(f"{LENGTH} 8 {LENGTH} auto", {}, id="taken back"),
        pytest.param("-tp 2", {"tensor_parallel_size": 2}, id="a short name"),
        pytest.param(f"{SHARE} 0.85", {"gpu_memory_utilization": 0.85}, id="a fraction"),
        pytest.param(f"vllm serve org/model {SEQS} 8", {"max_num_seqs": 8}, id="the whole command"),
        pytest.param(f"org/model \\\n  {SEQS} 8 # few\n", {"max_num_seqs": 8}, id="several lines"),
        pytest.param(f"--port 8000 --api-key a b {SEQS} 8", {"max_num_seqs": 8}, id="others too"),
        pytest.param("--max-num-b 256", {"max_num_batched_tokens": 256}, id="an abbreviation"),
        pytest.param("--no-enable-ch", {"enable_chunked_prefill": False}, id="of a switch"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_words_are_read_as_vllm_reads_them(text, values):
    found = from_words(text, V28)
    assert found.settings.given() == values
    assert not found.faults
    assert found.entry is Entry.SERVE


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        pytest.param(f"{CHUNKED} false", "false", "the word 'false'", id="a switch with a value"),
        pytest.param(f"{CHUNKED}=False", "enable_chunked_prefill", "takes no value", id="joined"),
        pytest.param(f"{SEQS} 1K", "max_num_seqs", "'1K' is no number", id="no suffix there"),
        pytest.param(f"{LENGTH} 2.5K", "max_model_len", "'2.5K'", id="half a binary thousand"),
        pytest.param(f"{LENGTH} 8,192", "max_model_len", "'8,192'", id="a comma"),
        pytest.param(f"{SHARE} 90%", "gpu_memory_utilization", "'90%'", id="per cent"),
        pytest.param(f"{SHARE} nan", "gpu_memory_utilization", "'nan'", id="not a number"),
        pytest.param(f"{SHARE} 1e999", "gpu_memory_utilization", "'1e999'", id="endless"),
        pytest.param(f"{SEQS} {'9' * 400}", "max_num_seqs", "no number", id="hundreds of digits"),
        pytest.param(f"{LENGTH} {'9' * 400}k", "max_model_len", "no number", id="with a suffix"),
        pytest.param(SEQS, "max_num_seqs", "needs a value", id="no value"),
        pytest.param(f"{SEQS} {CHUNKED}", "max_num_seqs", "needs a value", id="a flag instead"),
        pytest.param("--max-num 64", "max_num", "could be", id="cut too short"),
        pytest.param("--Max-Num-Seqs 2", "Max_Num_Seqs", "did you mean max-num-seqs?", id="case"),
        pytest.param("--bogus-flag-xyz 3", "bogus_flag_xyz", "no such argument", id="nobody's"),
        pytest.param("--scheduling-policy x", "scheduling_policy", "fcfs, priority", id="a choice"),
        pytest.param("--block-size x", "block_size", "'x' is no number", id="no number"),
        pytest.param("--eplb-config x", "eplb_config", "'x' is no JSON", id="no JSON"),
        pytest.param("--help", "help", "no such argument", id="help"),
    ],
)
def test_what_vllm_would_refuse_is_a_fault(text, what, said):
    (fault,) = from_words(text, V28).faults
    assert fault.what == what
    assert said in fault.why


def test_yaml_false_is_dropped_by_vllm_and_said_so():
    found = from_yaml("enable-chunked-prefill: false\nenforce-eager: false\nmax_num_seqs: 8", V28)
    assert found.settings.given() == {"max_num_seqs": 8}
    (fault,) = found.faults
    assert "write `no-enable-chunked-prefill: true`" in fault.why


def test_yaml_is_turned_into_words_as_vllm_does():
    text = (
        "model: org/m\nno-enable-chunked-prefill: true\nmax-model-len: 4K\nlora-modules: [a, b]\n"
    )
    found = from_yaml(text + "hf-overrides: {a: 1}\nport: 8000", V28)
    assert found.settings.given() == {"enable_chunked_prefill": False, "max_model_len": 4096}
    assert not found.faults
    assert found.model == "org/m"
    assert found.harmless == ("port",)
    assert found.others == {"lora_modules": "a b", "hf_overrides": "{}"}


@pytest.mark.parametrize(
    ("text", "others", "harmless"),
    [
        ("--enforce-eager", {"enforce_eager": "true"}, ()),
        ("--no-enforce-eager --dtype auto", {}, ("enforce_eager", "dtype")),
        ("--dtype=half -pp 8", {"dtype": "half", "pipeline_parallel_size": "8"}, ()),
        ("-cc.mode 3", {"compilation_config": "-cc.mode 3"}, ()),
        ("--config other.yaml", {"config": "other.yaml"}, ()),
        ("--who knows this", {"who": "knows this"}, ()),
    ],
)
def test_what_no_setting_stands_for_is_kept_as_it_is_written(text, others, harmless):
    found = from_words(text, V28)
    assert (found.others, found.harmless) == (others, harmless)


@pytest.mark.parametrize(
    ("text", "version", "known"),
    [
        ("--block-size 3", (0, 17, 0), False),
        ("--block-size 3", (0, 18, 0), True),
        ("--max-model-len auto", (0, 13, 0), False),
        ("--max-model-len auto", (0, 14, 0), True),
        ("--device-memory-utilization 0.9", (0, 30, 0), False),
        ("--device-memory-utilization 0.9", (0, 31, 0), True),
        ("--swap-space 4", (0, 18, 0), False),
        ("--swap-space 4", (0, 17, 0), True),
    ],
)
def test_what_is_taken_depends_on_the_version(text, version, known):
    assert (not from_words(text, version).faults) is known


@pytest.mark.parametrize(
    "text", ["vllm serve org/m -tp 2", "org/m", "--model org/m", "x --model=org/m"]
)
def test_the_model_is_found(text):
    start = "python3 -m vllm.entrypoints.openai.api_server "
    assert from_words(text, V28).model == "org/m"
    assert from_words(start + text.removeprefix("vllm serve "), V28).model == "org/m"


def test_a_list_that_holds_itself_many_times_over_costs_nothing():
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    found = from_yaml(f"a0: &a0 [x]\n{levels}max-num-seqs: 8", V28)
    assert found.settings.given() == {"max_num_seqs": 8}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("pretrained=a/b,max_model_len=4096", {"max_model_len": 4096}),
        ("lm_eval --model vllm --model_args 'pretrained=a b,max_num_seqs=8' \\\n  --tasks t",
         {"max_num_seqs": 8}),
        ("lm-eval run --model_args pretrained=a max_num_seqs=8 --tasks t", {"max_num_seqs": 8}),
        ("# comment\nmax_length=4096,\n max_batch_size=8",
         {"max_model_len": 4096, "max_num_seqs": 8}),
        ("enable_chunked_prefill=False", {"enable_chunked_prefill": False}),
        ('{"max_model_len": 4096, "enable_chunked_prefill": false}',
         {"max_model_len": 4096, "enable_chunked_prefill": False}),
    ],
)  # fmt: skip
def test_model_args_are_read_as_lm_eval_reads_them(text, values):
    found = from_model_args(text, V28)
    assert found.settings.given() == values
    assert found.entry is Entry.LLM
    assert found.defaults.given() == {"gpu_memory_utilization": 0.9}, "the harness has its own idea"


def test_model_args_that_neither_the_harness_nor_vllm_has_are_faults():
    found = from_model_args("pretrained=m,dtype=auto,port=1,bogus=2,max_num_s=3,batch_size=1", V28)
    assert [fault.what for fault in found.faults] == ["port", "bogus", "max_num_s"]
    assert found.others == {"port": "1", "bogus": "2", "max_num_s": "3", "batch_size": "1"}
    assert (found.model, found.harmless, dict(found.keywords)) == (
        "m",
        ("dtype",),
        {"dtype": "auto"},
    )


def test_model_args_can_be_at_fault():
    faults = from_model_args("max_length=1,max_model_len=2,max_num_seqs=4K", V28).faults
    assert [fault.what for fault in faults] == ["max_length", "max_num_seqs"]


FORMS = [(Target.VLLM_ARGS, "args.txt"), (Target.VLLM_YAML, "a.yaml"), (Target.LM_EVAL, "args")]


@pytest.mark.parametrize(("target", "name"), FORMS)
@pytest.mark.parametrize("lengths", [SHORT, MIXED, LONG], ids=["off", "conservative", "aggressive"])
def test_what_recommend_emits_is_read_back(tmp_path, target, name, lengths):
    made = plan(lengths)
    path = tmp_path / name
    path.write_text(emit(made, target).text)
    found = read_committed(path, V28)
    expected = made.llm_kwargs() if target is Target.LM_EVAL else made.settings.given()
    given = {k: v for k, v in found.settings.given().items() if k != "gpu_memory_utilization"}
    assert given == {k: v for k, v in expected.items() if k != "gpu_memory_utilization"}
    assert not found.faults


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        pytest.param("a.yaml", b"- 1", "no `key: value` lines", id="a list"),
        pytest.param("a.yaml", b"", "no `key: value` lines", id="empty"),
        pytest.param("a.yaml", b"a: [", "cannot be read as vllm-yaml", id="broken YAML"),
        pytest.param("a.yaml", b"a: " + b"[" * 5000, "cannot be read", id="endless nesting"),
        pytest.param("a.yaml", b"!!python/object:os.system {}", "cannot be read", id="a program"),
        pytest.param("a.txt", b"--x 'open", "No closing quotation", id="an open quote"),
        pytest.param("a.txt", b"a=1,b", "'b' is no key=value", id="half a pair"),
        pytest.param("a.txt", b"{", "cannot be read as lm-eval", id="broken JSON"),
        pytest.param("a.txt", b"\xff\xfe\x00", "not UTF-8", id="binary"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as error:
        read_committed(tmp_path / name, V28)
    assert said in error.value.message


def test_a_missing_file_or_a_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no such settings file"):
        read_committed(tmp_path / "none.yaml", V28)
    with pytest.raises(InputError, match="cannot read the settings file"):
        read_committed(tmp_path, V28)


def test_the_form_can_be_said(tmp_path):
    (tmp_path / "args.conf").write_text("max-num-seqs: 8")
    assert read_committed(tmp_path / "args.conf", V28, "vllm-yaml").settings.given() == {
        "max_num_seqs": 8
    }
