"""What is checked before an engine is started, and what a resumed run keeps."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.models import find_model, known_model
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.slo import read_slo
from chunkscope.verification import verify
from chunkscope.verification.engine_run import EngineJob, EngineRecord
from chunkscope.verification.inside.chunkscope_sessions import SentSession
from chunkscope.verification.options import Report, VerifyOptions
from chunkscope.verification.result import PromptSource, Verification
from chunkscope.verification.settings import SettingRow
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, WORKLOAD, failed, plan, profile, run, verification

SHAPE = find_model("llama-3.1-8b")
SET = Settings(max_num_batched_tokens=2_048)
ROWS = [SettingRow(name="plan", settings=SET), SettingRow(name="off", settings=SET)]


# -- options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"timeout_s": 0}, id="no time"),
        pytest.param({"repeats": 0}, id="no repeat"),
        pytest.param({"time_limit_s": 0}, id="cut off at once"),
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(UsageError):
        VerifyOptions(**options)


def test_code_of_the_model_runs_where_it_is_trusted():
    options = VerifyOptions(engine_args={"dtype": "float32"}, trust_remote_code=True)
    assert options.arguments == {"dtype": "float32", "trust_remote_code": True}


# -- the model -------------------------------------------------------------------------


def test_a_tokenizer_of_another_model_is_noticed_before_the_engine_dies_of_it():
    verify.check_vocabulary([[0, SHAPE.vocab - 1]], SHAPE)
    with pytest.raises(InputError, match=f"{SHAPE.vocab:,}"):
        verify.check_vocabulary([[1], [SHAPE.vocab]], SHAPE)


def test_a_folder_without_weights_needs_the_dummy_format(tmp_path):
    config = known_model("qwen2.5-1.5b").config
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(MissingError, match=str(tmp_path)):
        verify.model_for_engine(str(tmp_path), "auto")
    assert verify.model_for_engine(str(tmp_path), "dummy")[0] == str(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert verify.model_for_engine(str(tmp_path), "auto")[0] == str(tmp_path)


def test_a_built_in_model_has_the_same_folder_every_time():
    """vLLM looks up what it compiled before by the model's path."""
    folder, shape = verify.model_for_engine("Qwen/Qwen2.5-1.5B", "dummy")
    again, _ = verify.model_for_engine("Qwen/Qwen2.5-1.5B", "dummy")
    assert folder == again
    assert shape.hub_id == "Qwen/Qwen2.5-1.5B"


def test_a_plan_for_several_replicas_is_not_one_engines():
    planned = plan(MIXED, dp=2)
    with pytest.raises(UsageError, match="2 replicas"):
        verify.model_name(planned, VerifyOptions())


def test_the_model_is_the_one_named_else_the_plans():
    planned = plan(MIXED, model="qwen3-8b")
    assert verify.model_name(planned, VerifyOptions()) == planned.model.load_name
    assert verify.model_name(planned, VerifyOptions(model="./mine")) == "./mine"
    with pytest.raises(UsageError, match="names no model"):
        verify.model_name(plan(MIXED, model=None), VerifyOptions())


# -- what is sent ----------------------------------------------------------------------


def workload_of(planned, **options):
    data = profile(data=MIXED)
    sent = verify.what_is_sent(planned, data, VerifyOptions(**options), Report())
    return sent.workload


def test_the_workload_fits_the_plans_context():
    planned = plan(MIXED)
    workload = workload_of(planned, requests=500)
    longest = max(session.longest for session in workload.sessions)
    assert longest <= planned.effective.max_model_len
    assert workload.long_over == planned.decision.threshold


@pytest.mark.parametrize(("asked", "kept"), [(None, 9), (3, 3)])
def test_the_plans_concurrency_is_kept_unless_another_is_asked_for(asked, kept):
    workload = workload_of(plan(MIXED, concurrency=9), concurrency=asked)
    assert workload.concurrency == kept


@pytest.mark.parametrize(("asked", "kept"), [(None, "4/s"), ("batch", "batch")])
def test_the_plans_rate_is_kept_unless_another_is_asked_for(asked, kept):
    planned = plan(MIXED, concurrency=9)
    rated = replace(planned, request=replace(planned.request, arrivals="4/s"))
    assert workload_of(rated, arrivals=asked).arrivals == kept


def test_a_plan_of_other_data_is_refused():
    other = profile(data=[1, 2, 3])
    with pytest.raises(InputError, match="another profile"):
        verify.what_is_sent(plan(MIXED), other, VerifyOptions(), Report())


def test_the_longest_prompt_ends_where_the_context_does():
    data = profile(data=MIXED)
    assert verify.longest_prompt_of(plan(MIXED), data) == max(MIXED)
    short = plan(MIXED, max_model_len=3_000)
    assert verify.longest_prompt_of(short, data) == 2_999


# -- a resumed run ---------------------------------------------------------------------


def resume(old: Verification, rows=ROWS, **today) -> Verification:
    return verify.resumed(replace(old, runs=(), **today), old, rows)


def test_a_resumed_run_keeps_the_rows_that_are_final_under_the_names_of_today():
    old = verification(run("plan", 1.0), failed("off", Status.DIED), failed("gone"))
    named = [replace(ROWS[0], same_as=("length-rule",)), ROWS[1]]
    again = resume(old, named)
    (kept,) = again.runs
    assert (kept.setting, kept.same_as) == ("plan", ("length-rule",))
    assert again.machine == old.machine


def test_a_row_that_ran_out_of_memory_is_final():
    (kept,) = resume(verification(failed("off"))).runs
    assert kept.setting == "off"


SHARING = replace(WORKLOAD, stretches=(Stretch(parent=-1, tokens=32),))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"repeats": 9}, "number of repeats"),
        ({"slo": read_slo("ttft_p95=1s")}, "limits"),  # rows were judged by others
        ({"time_limit_s": 60.0}, "limits"),
        ({"source": PromptSource(datasets=("gsm8k",))}, "workload"),
        ({"workload": SHARING}, "workload"),
        ({"options": {"enforce_eager": True}}, "engine options"),
    ],
)
def test_another_verification_cannot_be_resumed(change, part):
    with pytest.raises(InputError, match=part):
        resume(verification(run("plan", 1.0)), **change)


def test_a_row_with_other_settings_is_measured_again_where_the_machine_is_now():
    changed = [SettingRow(name="plan", settings=Settings(max_num_batched_tokens=4_096))]
    again = resume(verification(run("plan", 1.0)), changed, machine=None)
    assert (again.runs, again.machine) == ((), None)


def test_rows_of_which_no_engine_ever_started_are_measured_again():
    old = verification(failed("plan", Status.REFUSED), machine=None)
    assert resume(old).runs == ()


class Measuring:
    """Measures rows without an engine."""

    def __init__(self, monkeypatch, folder) -> None:
        self.measured = []  # each row, and what was to be sent to calibrate
        self.calibrations = 0
        self.report = Report(output=folder / "verify.json")
        self.result = replace(verification(), runs=())
        calibration = SimpleNamespace(save=self.save_calibration)
        monkeypatch.setattr(verify, "measure", self.measure)
        monkeypatch.setattr(verify, "calibration_of", lambda *_: calibration)
        monkeypatch.setattr(verify, "calibration_path", lambda *_: None)

    def measure(self, row, job, *_):
        self.measured.append((row.name, job.bursts))
        return run(row.name, engine={"entry": job.entry}), EngineRecord()

    def save_calibration(self, *_) -> None:
        self.calibrations += 1

    def rows(self, rows, entry="serve", output_sample=()) -> None:
        job = EngineJob(
            python="",
            engine={},
            entry=entry,
            workload=WORKLOAD,
            warm_up=(),
            repeats=1,
            timeout_s=1,
            bursts=["all"],
            output_sample=output_sample,
        )
        self.measured = []
        result = verify.measure_rows(self.result, rows, job, SHAPE, self.report)
        self.result = result


@pytest.fixture
def measuring(monkeypatch, tmp_path) -> Measuring:
    return Measuring(monkeypatch, tmp_path)


def test_each_row_is_saved_and_the_first_ones_calibrate(measuring):
    measuring.rows(ROWS[:1])
    assert measuring.measured == [("plan", ["all"])]
    assert measuring.calibrations == 1
    assert Verification.load(measuring.report.output) == measuring.result


def test_a_resumed_run_keeps_its_rows_and_its_calibration(measuring):
    measuring.rows(ROWS[:1])
    measuring.rows(ROWS)
    assert measuring.measured == [("off", ())]
    assert measuring.calibrations == 1
    assert [run.setting for run in measuring.result.runs] == ["plan", "off"]


def test_rows_that_were_started_otherwise_are_measured_again(measuring):
    measuring.rows(ROWS)
    measuring.rows(ROWS, entry="llm")
    assert measuring.measured == [("plan", ()), ("off", ())]


def test_rows_without_answers_are_measured_again_where_answers_are_compared(measuring):
    measuring.rows(ROWS[:1])
    measuring.rows(ROWS[:1], output_sample=[SentSession([])])
    assert measuring.measured == [("plan", ())]


def test_a_log_is_named_for_its_row():
    assert verify.slug("max-num-seqs=8") == "max-num-seqs-8"
    assert verify.slug("--also") == "also"
