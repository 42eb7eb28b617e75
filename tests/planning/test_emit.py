import ast
import json
import subprocess

import pytest
import yaml

from chunkscope.engine.choices import Target, Task
from chunkscope.errors import UsageError
from chunkscope.planning.emit import emit
from tests.plans import FITTING, LONG, MIXED, SHORT, plan


def text(target, lengths=MIXED, **options):
    return emit(plan(lengths, **options), target).text


def test_vllm_args_is_one_line_that_a_shell_splits_into_the_arguments():
    made = plan(SHORT)
    line = emit(made, Target.VLLM_ARGS).text
    assert "\n" not in line
    shell = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' $(echo '{line}')"], capture_output=True, text=True, check=True
    )
    assert shell.stdout.split("\n")[:-1] == made.cli_args()


@pytest.mark.parametrize(
    ("lengths", "line"),
    [
        (SHORT, "--max-model-len 768 --max-num-batched-tokens 8192 --no-enable-chunked-prefill"),
        (FITTING, "--max-model-len 4352 --long-prefill-token-threshold 2048"),
        (LONG, "--max-model-len 14336"),
    ],
    ids=["off", "conservative", "aggressive"],
)
def test_vllm_args_on_an_h200(lengths, line):
    assert text(Target.VLLM_ARGS, lengths) == line


def test_nothing_to_set_is_an_empty_line():
    assert text(Target.VLLM_ARGS, [32_000], model="qwen2.5-7b-instruct", gpu="h200") == ""


def test_nothing_to_set_is_an_empty_mapping_because_vllm_dies_of_an_empty_file():
    line = text(Target.VLLM_YAML, [32_000], model="qwen2.5-7b-instruct", gpu="h200")
    assert yaml.safe_load(line) == {}


def test_yaml_writes_off_as_a_key_of_its_own_because_vllm_drops_false():
    emission = emit(plan(SHORT), Target.VLLM_YAML)
    assert yaml.safe_load(emission.text) == {
        "max-model-len": 768,
        "max-num-batched-tokens": 8192,
        "no-enable-chunked-prefill": True,
    }
    assert "false" not in emission.text.lower()


def test_python_is_a_call_that_parses_and_pins_what_llm_would_choose_otherwise():
    tree = ast.parse(text(Target.PYTHON, FITTING))
    call = tree.body[1].value
    assert {k.arg: ast.literal_eval(k.value) for k in call.keywords} == {
        "model": "meta-llama/Llama-3.1-8B",
        "max_model_len": 4_352,
        "max_num_batched_tokens": 8_192,
        "long_prefill_token_threshold": 2_048,
    }


def test_json_holds_the_arguments_by_vllms_names():
    assert json.loads(text(Target.JSON)) == plan(MIXED).settings.given()


def test_env_can_be_sourced(tmp_path):
    (tmp_path / "env").write_text(text(Target.ENV, SHORT) + "\n")
    shell = subprocess.run(
        ["sh", "-c", ". ./env; echo $CHUNKSCOPE_VLLM_ARGS; echo $CHUNKSCOPE_MAX_MODEL_LEN"],
        cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shell.stdout.splitlines() == [text(Target.VLLM_ARGS, SHORT), "768"]


def test_env_names_do_not_look_like_vllms_own():
    assert not any(line.startswith("VLLM_") for line in text(Target.ENV).splitlines())


def test_lm_eval_gets_one_string_with_the_utilization_spelled_out():
    assert text(Target.LM_EVAL, SHORT) == (
        "pretrained=meta-llama/Llama-3.1-8B,max_model_len=768,max_num_batched_tokens=8192,"
        "enable_chunked_prefill=False,gpu_memory_utilization=0.92"
    )


def test_lighteval_gets_only_the_keys_it_knows_and_says_what_is_lost():
    emission = emit(plan(FITTING), Target.LIGHTEVAL)
    assert emission.text == (
        "model_name=meta-llama/Llama-3.1-8B,max_model_length=4352,max_num_batched_tokens=8192,"
        "max_num_seqs=1024,gpu_memory_utilization=0.92"
    )
    assert any("long_prefill_token_threshold" in loss for loss in emission.lost)
    assert any("off" in loss for loss in emit(plan(SHORT), Target.LIGHTEVAL).lost)


def test_lighteval_keeps_a_likelihood_eval_in_memory_by_its_budget():
    made = plan(LONG, model="qwen2.5-7b", gpu="h100", task=Task.LOGLIKELIHOOD)
    threshold = made.settings.long_prefill_token_threshold
    assert f"max_num_batched_tokens={threshold}," in emit(made, Target.LIGHTEVAL).text


def test_inspect_gets_pairs_that_become_server_flags():
    assert text(Target.INSPECT, SHORT) == (
        "-M max_model_len=768 -M max_num_batched_tokens=8192 -M no_enable_chunked_prefill=true"
    )


@pytest.mark.parametrize("target", [Target.DOCKER_COMPOSE, Target.KUBERNETES])
def test_manifests_parse_and_hold_image_arguments_and_gpus(target):
    made = plan(SHORT, model="llama-3.1-70b", tp=4)
    document = yaml.safe_load(emit(made, target).text)
    if target is Target.DOCKER_COMPOSE:
        service = document["services"]["vllm"]
        image, words = service["image"], service["command"]
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        gpus = device["count"]
    else:
        (container,) = document["spec"]["template"]["spec"]["containers"]
        image, words = container["image"], container["args"]
        gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert image == "vllm/vllm-openai:v0.24.0"
    assert words == ["--model", "meta-llama/Llama-3.1-70B", *made.cli_args()]
    assert gpus == 4


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("version", ["0.10.2", "0.24.0", "0.28.0", "0.32.0"])
def test_no_form_ever_names_partial_prefills(target, version):
    for lengths in (SHORT, MIXED, LONG):
        assert "partial" not in text(target, lengths, vllm_version=version)


@pytest.mark.parametrize("target", Target)
def test_what_a_version_cannot_do_is_said_in_every_form(target):
    emission = emit(plan(SHORT, vllm_version="0.10.2"), target)
    assert any("ignores" in loss for loss in emission.lost)
    assert "chunked" not in emission.text.lower()


@pytest.mark.parametrize("target", Target)
def test_every_form_works_without_model_and_gpu(target):
    assert "4352" in text(target, model=None, gpu=None)


@pytest.mark.parametrize("target", [Target.LM_EVAL, Target.LIGHTEVAL])
def test_a_comma_in_the_models_path_cannot_be_written_as_pairs(target, tmp_path):
    from chunkscope.costs.models import MODELS

    folder = tmp_path / "a,b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODELS["llama-3.1-8b"].config))
    with pytest.raises(UsageError, match="cannot be written"):
        text(target, model=str(folder))
