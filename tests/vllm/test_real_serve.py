"""What the real `vllm serve` makes of words.

Every form that ends in it is read as the plan's own words are (test_real_vllm.py checks
these); the table of options is its own.

One process answers for the whole file.
"""

import csv
import shlex
import subprocess

import pytest
import yaml

from chunkscope.gating.read_settings import from_words
from chunkscope.planning.emit import emit
from chunkscope.vllm.enums import Mode, Target
from chunkscope.vllm.flags import release
from tests.build import LONG, MIXED, SHORT, plan
from tests.vllm.serve_flag_rows import TABLE, rows_of

pytestmark = pytest.mark.real

PLANS = {
    "off": {"lengths": SHORT},
    "off on two GPUs": {"lengths": SHORT, "tp": 2},
    "conservative": {"lengths": MIXED},
    "aggressive": {"lengths": LONG, "gpu": "a100"},
    "off for long prompts": {"lengths": LONG, "mode": Mode.OFF},
    "nothing to set": {"lengths": [32_000], "model": "qwen2.5-7b-instruct"},
}
MODEL = "some/model"
WORDS = (
    *("--max-num-b 256", "--no-enable-ch --port 8000 --api-key a b", "--max-num 64"),
    *(
        "--Max-Num-Seqs 2",
        "--bogus-flag-xyz 3",
        "--scheduling-policy bogus",
        "--block-size x",
    ),
    *("--max-num-seqs 1K", "--max-model-len 25.6k", "--enable-chunked-prefill false"),
    "-tp 2 -pp 8 -O3 --hf-overrides.num_hidden_layers 1",
)


def shell_words(text):
    """As `vllm serve MODEL $(chunkscope recommend --emit vllm-args)` splits it."""
    return _shell(f"printf '%s\\n' $(cat <<'END'\n{text}\nEND\n)")


def sourced_words(text):
    """As `. FILE; vllm serve MODEL $CHUNKSCOPE_VLLM_ARGS` splits it."""
    return _shell(f"{text}\nprintf '%s\\n' $CHUNKSCOPE_VLLM_ARGS")


def _shell(script):
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def inspect_words(text):
    """As Inspect builds its server's command line: a switch has no value."""
    words = []
    for pair in text.split(" -M ")[1:]:
        name, value = pair.split("=")
        words += ["--" + name.replace("_", "-"), *([] if value == "null" else [value])]
    return words


def config_file(folder, text):
    path = folder / f"{len(list(folder.iterdir()))}.yaml"
    path.write_text(text)
    return ["--config", str(path)]


def lines_of(made, folder):
    """Each form's words after `vllm serve`, all to be read alike."""
    text = {target: emit(made, target).text for target in Target}
    compose = yaml.safe_load(text[Target.DOCKER_COMPOSE])["services"]["vllm"]["command"]
    _, deployment, _ = yaml.safe_load_all(text[Target.KUBERNETES])
    manifest = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return {
        "plan.cli_args()": [MODEL, *made.cli_args()],
        Target.VLLM_ARGS: [MODEL, *shell_words(text[Target.VLLM_ARGS])],
        Target.ENV: [MODEL, *sourced_words(text[Target.ENV])],
        Target.VLLM_YAML: [MODEL, *config_file(folder, text[Target.VLLM_YAML])],
        Target.INSPECT: [MODEL, *inspect_words(text[Target.INSPECT])],
        Target.DOCKER_COMPOSE: [MODEL, *compose[1:]],
        Target.KUBERNETES: [MODEL, *manifest[1:]],
    }


@pytest.fixture(scope="session")
def served(probe, installed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("yaml")
    asked = {
        (name, form): words
        for name, options in PLANS.items()
        for form, words in lines_of(
            plan(**options, vllm_version=installed[0]), folder
        ).items()
    }
    traps = {
        "false": "enable-chunked-prefill: false",
        "no-": "no-enable-chunked-prefill: true",
        "nothing": "# nothing",
    }
    files = {trap: config_file(folder, text) for trap, text in traps.items()}
    asked |= {("trap", trap): [MODEL, *words] for trap, words in files.items()}
    asked |= {("words", words): ["m", *shlex.split(words)] for words in WORDS}
    asked["trap", "="] = [MODEL, "=".join(files["no-"])]
    answers = probe("serve_probe", [["serve", *words] for words in asked.values()])
    return dict(zip(asked, answers, strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_every_form_is_read_as_the_plans_own_words(served, name):
    forms = {
        form: read for (plan_name, form), read in served.items() if plan_name == name
    }
    expected = forms.pop("plan.cli_args()")
    assert expected is not None
    for form, read in forms.items():
        assert read == expected, form


def test_why_the_yaml_is_written_as_it_is(served):
    """A false is dropped, `--config=FILE` ignored; a file without a key kills it."""

    def chunks(*case):
        return served[case]["enable_chunked_prefill"]

    assert (chunks("off", Target.VLLM_YAML), chunks("trap", "no-")) == (
        "False",
        "False",
    )
    assert {chunks("trap", "false"), chunks("trap", "=")} == {"None"}
    assert chunks("conservative", Target.VLLM_YAML) == "None"
    assert served["trap", "nothing"] is None
    assert served["nothing to set", Target.VLLM_YAML] is not None


def test_what_is_a_fault_here_is_refused_there_and_nothing_else(served, installed):
    version = release(installed[0]).version
    for words in WORDS:
        refused = served["words", words] is None
        assert refused is bool(from_words(shlex.split(words), version).refusals), words


def test_the_options_are_the_installed_vllms(installed):
    version, when = release(installed[0]).version, ("since", "until")
    with TABLE.open(encoding="utf-8", newline="") as text:
        table = [row for row in csv.DictReader(text) if holds(row, version)]
    assert rows_of(installed[1]) == {
        row["name"]: {part: text for part, text in row.items() if part not in when}
        for row in table
    }


def holds(row, version):
    until = row["until"]
    return release(row["since"]).version <= version < release(until or "9.0").version
