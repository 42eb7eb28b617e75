import ast
import json
import shlex
import subprocess

import pytest
import yaml

from chunkscope.errors import UsageError
from chunkscope.models import MODELS
from chunkscope.planning.emit import emit
from chunkscope.vllm.enums import Entry, Target
from tests.build import FITTING, LONG, MIXED, SHORT, plan, plan_that_sets

OFF = {"max_model_len": 768, "max_num_batched_tokens": 8192, "enable_chunked_prefill": False}


def text(target, lengths=MIXED, **options):
    return emit(plan(lengths, **options), target).text


def text_of(given, target, **options):
    return emit(plan_that_sets(given=given, **options), target).text


@pytest.mark.parametrize(
    ("lengths", "line"),
    [
        (SHORT, "--max-model-len 768 --no-enable-chunked-prefill"),
        (FITTING, "--max-model-len 4352 --long-prefill-token-threshold 2048"),
        (LONG, "--max-model-len 14336"),
    ],
    ids=["off", "conservative", "aggressive"],
)
def test_vllm_args_is_one_line_that_a_shell_splits_into_the_arguments(lengths, line):
    assert text(Target.VLLM_ARGS, lengths) == line
    assert line.split() == plan(lengths).cli_args()


def test_yaml_has_a_key_for_off_because_vllm_drops_false_and_a_mapping_where_nothing_is_set():
    written = yaml.safe_load(text(Target.VLLM_YAML, SHORT))
    assert written == {"max-model-len": 768, "no-enable-chunked-prefill": True}
    assert yaml.safe_load(text_of({}, Target.VLLM_YAML)) == {}, "vLLM dies of an empty file"
    assert text_of({}, Target.VLLM_ARGS) == ""


def test_python_is_a_call_that_parses_and_pins_what_llm_would_choose_otherwise():
    tree = ast.parse(text(Target.PYTHON, FITTING))
    call = tree.body[1].value
    assert {k.arg: ast.literal_eval(k.value) for k in call.keywords} == {
        "model": "meta-llama/Llama-3.1-8B",
        "max_model_len": 4_352,
        "max_num_batched_tokens": 8_192,
        "long_prefill_token_threshold": 2_048,
    }


def test_env_can_be_sourced(tmp_path):
    (tmp_path / "env").write_text(text(Target.ENV, SHORT) + "\n")
    shell = subprocess.run(
        ["sh", "-c", ". ./env; echo $CHUNKSCOPE_VLLM_ARGS; echo $CHUNKSCOPE_MAX_MODEL_LEN"],
        cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shell.stdout.splitlines() == [text(Target.VLLM_ARGS, SHORT), "768"]


# -- harnesses: whole commands -------------------------------------------------------------------


def test_lm_eval_gets_a_whole_command_with_the_memory_spelled_out():
    words = shlex.split(text_of(OFF, Target.LM_EVAL))
    assert words[:4] == ["lm_eval", "--model", "vllm", "--model_args"]
    assert words[4].split(",") == [
        "pretrained=meta-llama/Llama-3.1-8B",
        "max_model_len=768",
        "max_num_batched_tokens=8192",
        "enable_chunked_prefill=False",
        "gpu_memory_utilization=0.92",
    ]
    assert words[5:] == ["--batch_size", "auto", "--tasks", "TASK"]


def test_lm_eval_cuts_prompts_to_a_context_that_is_set_and_only_then():
    cut = emit(plan_that_sets(given=OFF), Target.LM_EVAL)
    assert "emit_lm_eval_cuts" in {note.code for note in cut.notes}
    free = emit(plan_that_sets(given={"max_num_seqs": 512}), Target.LM_EVAL)
    assert "max_model_len" not in free.text
    assert "emit_lm_eval_cuts" not in {note.code for note in free.notes}


def test_inspect_gets_a_whole_command_and_pairs_that_become_server_flags():
    assert text_of(OFF, Target.INSPECT) == (
        "inspect eval TASK --model vllm/meta-llama/Llama-3.1-8B --max-connections 50"
        " -M max_model_len=768 -M max_num_batched_tokens=8192 -M no_enable_chunked_prefill=null"
    )


@pytest.mark.parametrize("target", Target)
def test_only_for_a_server_it_is_said_how_many_requests_fill_it(target):
    made = plan_that_sets(given={"max_num_seqs": 16})
    notes = {note.code: note.values for note in emit(made, target).notes}
    assert ("emit_in_flight" in notes) == (target.entry is Entry.SERVE)
    assert notes.get("emit_in_flight", {"requests": 16}) == {"requests": 16}


@pytest.mark.parametrize("target", Target)
def test_every_form_says_who_starts_the_engine_it_was_planned_for(target):
    """In Python more tokens go into a step and fewer or more requests run than in a server."""
    same, other = (
        emit(plan_that_sets(given={}, entry=entry), target)
        for entry in sorted(set(Entry) - {Entry.OTHER}, key=lambda one: one is not target.entry)
    )
    assert "emit_spelled_out" not in {note.code for note in same.notes}
    assert "8192" not in same.text, "its own default is never an argument"
    if target is not Target.JSON:
        assert other.notes[0].code == "emit_spelled_out"
        assert ("8192" in other.text) or ("16384" in other.text)


@pytest.fixture
def folder(tmp_path):
    """A model with everything in its path that a shell or a template could trip over."""
    place = tmp_path / "my $HOME 'model'"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(MODELS["llama-3.1-8b"].config))
    return place


def test_a_path_with_blanks_and_dollars_is_one_word_in_every_command(folder):
    made = plan(SHORT, model=str(folder))
    for target in (Target.LM_EVAL, Target.INSPECT):
        line = emit(made, target).text
        shell = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True
        )
        assert any(str(folder) in word for word in shell.stdout.splitlines()), target


# -- manifests -----------------------------------------------------------------------------------


def compose(**options):
    emission = emit(plan_that_sets(**{"given": OFF, **options}), Target.DOCKER_COMPOSE)
    return yaml.safe_load(emission.text)["services"]["vllm"]


def manifests(**options):
    emission = emit(plan_that_sets(**{"given": OFF, **options}), Target.KUBERNETES)
    return {found["kind"]: found for found in yaml.safe_load_all(emission.text)}


def pod(**options):
    return manifests(**options)["Deployment"]["spec"]["template"]["spec"]


SIZES = ["--max-model-len", "768", "--max-num-batched-tokens", "8192"]
FLAGS = [*SIZES, "--no-enable-chunked-prefill"]


def test_compose_runs_the_versions_image_with_the_model_as_a_word_of_its_own():
    given = {**OFF, "tensor_parallel_size": 4}
    service = compose(given=given, model="llama-3.1-70b", tp=4)
    assert service["image"] == "vllm/vllm-openai:v0.24.0"
    assert service["entrypoint"] == ["vllm", "serve"]
    words = ["meta-llama/Llama-3.1-70B", *FLAGS, "--tensor-parallel-size", "4"]
    assert service["command"] == words
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"]) == ("nvidia", 4)


def test_an_amd_gpu_gets_vllms_image_for_rocm_and_its_devices():
    given = {"max_num_seqs": 64, "tensor_parallel_size": 2}
    service = compose(given=given, gpu="mi300x", tp=2)
    assert service["image"] == "vllm/vllm-openai-rocm:v0.24.0"
    assert {"/dev/kfd", "/dev/dri"} <= set(service["devices"])
    assert "deploy" not in service
    (container,) = pod(given=given, gpu="mi300x", tp=2)["containers"]
    assert container["image"] == "vllm/vllm-openai-rocm:v0.24.0"
    assert container["resources"]["limits"] == {"amd.com/gpu": 2}


def test_compose_mounts_the_models_whole_folder_and_escapes_what_it_would_replace(
    folder, monkeypatch
):
    monkeypatch.chdir(folder.parent)
    service = compose(model=f"./{folder.name}")
    whole = str(folder).replace("$", "$$")
    assert service["command"][0] == whole
    mounted = {"type": "bind", "source": whole, "target": whole, "read_only": True}
    assert service["volumes"][1] == mounted


def test_kubernetes_has_a_service_a_claim_a_probe_and_the_token():
    given = {**OFF, "tensor_parallel_size": 4}
    found = manifests(given=given, model="llama-3.1-70b", tp=4)
    assert set(found) == {"PersistentVolumeClaim", "Deployment", "Service"}
    spec = pod(given=given, model="llama-3.1-70b", tp=4)
    assert spec["enableServiceLinks"] is False, "it would set VLLM_PORT to an address"
    (container,) = spec["containers"]
    assert container["command"] == ["vllm", "serve"]
    assert container["args"][0] == "meta-llama/Llama-3.1-70B"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    (token,) = (e for e in container["env"] if e["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"]["optional"] is True
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"] == "280Gi"


def test_kubernetes_mounts_the_models_folder_of_the_node(folder):
    spec = pod(model=str(folder))
    (container,) = spec["containers"]
    assert container["args"][0] == str(folder).replace("$", "$$")
    assert container["volumeMounts"][-1]["mountPath"] == str(folder)
    assert spec["volumes"][-1]["hostPath"]["path"] == str(folder)


@pytest.mark.parametrize("target", Target)
def test_every_form_works_without_model_and_gpu(target):
    assert "4352" in text(target, model=None, gpu=None)


def test_a_comma_in_the_models_path_cannot_be_written_as_pairs(folder):
    with pytest.raises(UsageError, match="a,b"):
        text(Target.LM_EVAL, model=str(folder.rename(folder.with_name("a,b"))))
