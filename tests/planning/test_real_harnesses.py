"""What is emitted for others, given to them: two harnesses, the schemas of two
manifests.

They are asked through CHUNKSCOPE_HARNESS_PYTHON, an interpreter that has them. Only
vLLM is a dummy, which writes down how it was started and ends: what a harness makes of
the pasted words is what is looked at. They run in a folder with a task called TASK.
"""

import json
import os
import subprocess

import pytest
import yaml

from chunkscope.planning.emit import emit
from chunkscope.vllm.enums import Entry, Target
from tests.build import plan_that_sets

pytestmark = pytest.mark.real

GIVEN = {
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 512,
    "enable_chunked_prefill": False,
}
LM_EVAL_TASK = """task: TASK
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
"""
INSPECT_TASK = """from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate
@task
def one(): return Task(dataset=[Sample(input="1+1?", target="2")], solver=generate())
"""
# Whatever a harness imports from vLLM is there; only LLM does something.
VLLM = """import json, os, sys, types
class Anything(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})
for name in ("lora", "lora.request", "renderers", "renderers.hf", "tokenizers"):
    sys.modules[f"vllm.{name}"] = Anything(name)
class LLM:
    def __init__(self, **keywords):
        with open("asked", "w") as file:
            json.dump(keywords, file, default=str)
        os._exit(7)
SamplingParams = TokensPrompt = None
"""
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.24.0\n"
SERVER = """#!/bin/sh
printf '%s\\n' "$@" > asked
exit 1
"""


@pytest.fixture
def asked(harness_python, tmp_path):
    """Paste a command into a shell; what vLLM was started with."""
    files = {
        "TASK.yaml": LM_EVAL_TASK,
        "TASK.py": INSPECT_TASK,
        "rows.jsonl": '{"question": "1+1?", "answer": "2"}\n',
        "lib/vllm/__init__.py": VLLM,
        "lib/vllm-0.24.0.dist-info/METADATA": METADATA,
        "bin/vllm": SERVER,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "bin" / "vllm").chmod(0o755)
    path = [str(harness_python.parent), str(tmp_path / "bin"), os.environ["PATH"]]
    env = {"PATH": ":".join(path), "PYTHONPATH": "lib", "HF_HUB_OFFLINE": "1"}

    def paste(line):
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, **env, "HF_HOME": str(tmp_path / "hf")},
            capture_output=True,
            text=True,
            check=False,
        )
        found = tmp_path / "asked"
        assert found.exists(), done.stdout[-3000:] + done.stderr[-3000:]
        return found.read_text()

    return paste


def test_lm_eval_starts_vllm_as_planned(asked):
    made = plan_that_sets(given=GIVEN)
    keywords = json.loads(asked(emit(made, Target.LM_EVAL).text + " --include_path ."))
    expected = {
        "model": "meta-llama/Llama-3.1-8B",
        **made.settings_for(Entry.LLM).given(),
    }
    assert {name: keywords[name] for name in expected} == expected
    assert keywords["max_model_len"] is None
    assert keywords["gpu_memory_utilization"] == 0.92


def test_inspect_starts_a_server_as_planned(asked):
    made = plan_that_sets(given=GIVEN)
    line = emit(made, Target.INSPECT).text.replace(" TASK ", " TASK.py ")
    words = asked(line + " --display plain").splitlines()
    assert words[:2] == ["serve", "meta-llama/Llama-3.1-8B"]
    planned = made.cli_args()
    begin = words.index(planned[0])
    assert words[begin : begin + len(planned)] == planned


def asking(python, program, text):
    done = subprocess.run(
        [python, "-c", program], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("tp", [1, 4])
def test_kubernetes_accepts_every_document(harness_python, tp):
    made = plan_that_sets(given=GIVEN, model="llama-3.1-70b", tp=tp, gpu="b200")
    program = (
        "import json, sys, kubernetes_validate as k\n"
        "for one in json.load(sys.stdin):\n"
        "    for version in ('1.25', '1.29', '1.33', '1.37'): k.validate(one, "
        "version, strict=True)"
    )
    documents = [*yaml.safe_load_all(emit(made, Target.KUBERNETES).text)]
    asking(harness_python, program, json.dumps(documents))


def test_compose_accepts_the_file(harness_python):
    made = plan_that_sets(given=GIVEN)
    program = (
        "import json, sys, jsonschema, pathlib, importlib.util as u\n"
        "root = pathlib.Path(u.find_spec('compose').submodule_search_locations[0])\n"
        "schema = json.loads((root / 'config' / 'compose_spec.json').read_text())\n"
        "jsonschema.validate(json.load(sys.stdin), schema)"
    )
    document = yaml.safe_load(emit(made, Target.DOCKER_COMPOSE).text)
    asking(harness_python, program, json.dumps(document))
