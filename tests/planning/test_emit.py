import json
import subprocess

import pytest
import yaml

from chunkscope.errors import UsageError
from chunkscope.models import MODELS
from chunkscope.planning.emit import emit
from chunkscope.vllm.enums import Entry, Target
from tests.build import MIXED, SHORT, plan, plan_that_sets

OFF = {
    "max_model_len": 768,
    "max_num_batched_tokens": 8192,
    "enable_chunked_prefill": False,
}


def text(target, lengths=MIXED, **options):
    return emit(plan(lengths, **options), target).text


def text_of(given, target, **options):
    return emit(plan_that_sets(given=given, **options), target).text


def test_yaml_is_a_mapping_where_nothing_is_set():
    assert yaml.safe_load(text_of({}, Target.VLLM_YAML)) == {}, (
        "vLLM dies of an empty file"
    )
    assert text_of({}, Target.VLLM_ARGS) == ""


def test_env_can_be_sourced(tmp_path):
    (tmp_path / "env").write_text(text(Target.ENV, SHORT) + "\n")
    shell = subprocess.run(
        [
            "sh",
            "-c",
            ". ./env; echo $CHUNKSCOPE_VLLM_ARGS; echo $CHUNKSCOPE_MAX_MODEL_LEN",
        ],
        cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shell.stdout.splitlines() == [text(Target.VLLM_ARGS, SHORT), "768"]


# -- harnesses: whole commands -------------------------------------------------------


def test_lm_eval_cuts_prompts_to_a_context_that_is_set_and_only_then():
    cut = emit(plan_that_sets(given=OFF), Target.LM_EVAL)
    assert "emit_lm_eval_cuts" in {note.code for note in cut.notes}
    free = emit(plan_that_sets(given={"max_num_seqs": 512}), Target.LM_EVAL)
    assert "max_model_len" not in free.text
    assert "emit_lm_eval_cuts" not in {note.code for note in free.notes}


@pytest.mark.parametrize("target", Target)
def test_every_form_says_who_starts_the_engine_it_was_planned_for(target):
    """In Python more tokens go into a step and fewer or more requests run than in a
    server."""
    same, other = (
        emit(plan_that_sets(given={}, entry=entry), target)
        for entry in sorted(
            set(Entry) - {Entry.OTHER}, key=lambda one: one is not target.entry
        )
    )
    assert "emit_spelled_out" not in {note.code for note in same.notes}
    assert "8192" not in same.text, "its own default is never an argument"
    if target is not Target.JSON:
        assert other.notes[0].code == "emit_spelled_out"
        assert ("8192" in other.text) or ("16384" in other.text)


@pytest.fixture
def folder(tmp_path):
    """A model with everything in its path that a shell or a template could trip
    over."""
    place = tmp_path / "my $HOME 'model'"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(MODELS["llama-3.1-8b"].config))
    return place


def test_a_path_with_blanks_and_dollars_is_one_word_in_every_command(folder):
    made = plan(SHORT, model=str(folder))
    for target in (Target.LM_EVAL, Target.INSPECT):
        line = emit(made, target).text
        shell = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {line}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert any(str(folder) in word for word in shell.stdout.splitlines()), target


# -- manifests -----------------------------------------------------------------------


def test_compose_mounts_the_models_whole_folder_and_escapes_what_it_would_replace(
    folder, monkeypatch
):
    monkeypatch.chdir(folder.parent)
    made = plan_that_sets(given=OFF, model=f"./{folder.name}")
    service = yaml.safe_load(emit(made, Target.DOCKER_COMPOSE).text)["services"]["vllm"]
    whole = str(folder).replace("$", "$$")
    assert service["command"][0] == whole
    mounted = {"type": "bind", "source": whole, "target": whole, "read_only": True}
    assert service["volumes"][1] == mounted


def test_kubernetes_mounts_the_models_folder_of_the_node(folder):
    emission = emit(plan_that_sets(given=OFF, model=str(folder)), Target.KUBERNETES)
    _, deployment, _ = yaml.safe_load_all(emission.text)
    spec = deployment["spec"]["template"]["spec"]
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
