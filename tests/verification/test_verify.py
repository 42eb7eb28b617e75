"""What is checked before an engine is started, what a resumed run keeps, and the artefact."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from chunkscope.console import Progress
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.models import find_model, known_model
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import single
from chunkscope.verification import verify
from chunkscope.verification.engine_run import EngineJob, EngineRecord
from chunkscope.verification.prompts import RealPrompt
from chunkscope.verification.result import PromptSource, Verification
from chunkscope.verification.settings import (
    SettingRow,
    parse_engine_args,
    parse_point,
    rows_of,
)
from chunkscope.verification.verify import VerifyOptions
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings
from tests.build import (
    MIXED,
    WORKLOAD,
    failed,
    plan,
    plan_that_sets,
    profile,
    run,
    verification,
)

SHAPE = find_model("llama-3.1-8b")
SET = Settings(max_num_batched_tokens=2_048)
ROWS = [SettingRow(name=name, settings=SET) for name in ("plan", "off")]


def test_a_tokenizer_of_another_model_is_noticed_before_the_engine_dies_of_it() -> None:
    def prompts(*ids):
        return [RealPrompt("", ids, is_complete=False)]

    verify.check_vocabulary(prompts(0, SHAPE.vocab - 1), SHAPE)
    with pytest.raises(InputError, match=f"{SHAPE.vocab:,}"):
        verify.check_vocabulary(prompts(SHAPE.vocab), SHAPE)


def test_the_longest_prompt_and_the_requests_with_short_answers_warm_an_engine_up() -> (
    None
):
    """The longest prompt decides the peak, though it may not be among the requests."""
    data, long = profile(data=MIXED), single(100, 300)
    sent = replace(WORKLOAD, sessions=(long, *WORKLOAD.sessions))
    assert verify.warm_up(sent, plan(MIXED), data) == [
        (4_000, 1, 0.0, None), (100, 16, 0.0, 0), (100, 8, 0.0, 1), (5_000, 8, 0.0, 2)
    ]  # fmt: skip
    short = plan(MIXED, max_model_len=3_000)
    assert verify.warm_up(sent, short, data)[0][:2] == (2_999, 1), (
        "as far as the context goes"
    )


def test_the_workload_fits_the_plans_context_and_keeps_its_concurrency() -> None:
    planned, data = plan(MIXED, concurrency=9), profile(data=MIXED)
    workload = verify.blank_verification(
        planned, data, VerifyOptions(requests=500), Progress()
    )[0].workload
    room = planned.effective.max_model_len
    assert max(r.prompt_tokens + r.output_tokens for r in workload.requests) <= room
    assert (workload.long_over, workload.concurrency) == (planned.decision.threshold, 9)
    kept, _ = verify.blank_verification(
        planned, data, VerifyOptions(concurrency=3), Progress()
    )
    assert kept.workload.concurrency == 3
    rated = replace(planned, request=replace(planned.request, arrivals="4/s"))
    for given, arrivals in ((None, "4/s"), ("batch", "batch")):
        sent, _ = verify.blank_verification(
            rated, data, VerifyOptions(arrivals=given), Progress()
        )
        assert sent.workload.arrivals == arrivals


@pytest.mark.parametrize(
    "options", [{"data": ["x"], "shared_prefix": 0}, {"timeout_s": 0}]
)
def test_options_that_make_no_sense_are_refused(options) -> None:
    with pytest.raises(UsageError):
        VerifyOptions(**options)


def test_a_folder_without_weights_needs_the_dummy_format(tmp_path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(known_model("qwen2.5-1.5b").config)
    )
    with pytest.raises(MissingError, match=str(tmp_path)):
        verify.model_for_engine(str(tmp_path), "auto")
    assert verify.model_for_engine(str(tmp_path), "dummy")[0] == str(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert verify.model_for_engine(str(tmp_path), "auto")[0] == str(tmp_path)


def test_a_built_in_model_has_the_same_folder_every_time() -> None:
    """vLLM looks up what it compiled before by the model's path."""
    (folder, shape), (again, _) = (
        verify.model_for_engine("Qwen/Qwen2.5-1.5B", "dummy") for _ in "ab"
    )
    assert folder == again
    assert shape.hub_id == "Qwen/Qwen2.5-1.5B"


def resume(old: Verification, rows=ROWS, **fresh) -> Verification:
    return verify.resumed(replace(old, runs=(), **fresh), old, rows)


def test_a_resumed_run_keeps_the_rows_that_are_final_under_the_names_of_today() -> None:
    old = verification(run("plan", 1.0), failed("off", Status.DIED), failed("gone"))
    named = [replace(ROWS[0], same_as=("length-rule",)), ROWS[1]]
    (kept,) = resume(old, named).runs
    assert (kept.setting, kept.same_as) == ("plan", ("length-rule",))
    assert [r.setting for r in resume(verification(failed("off"))).runs] == ["off"]
    assert resume(old, named).machine == old.machine


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"repeats": 9}, "number of repeats"),
        ({"slo": read_slo("ttft_p95=1s")}, "limits"),  # rows were judged by others
        ({"source": PromptSource(datasets=("gsm8k",))}, "workload"),
        (
            {"workload": replace(WORKLOAD, stretches=(Stretch(parent=-1, tokens=32),))},
            "workload",
        ),
        ({"options": {"enforce_eager": True}}, "engine options"),
    ],
)
def test_another_verification_cannot_be_resumed(change, what) -> None:
    with pytest.raises(InputError, match=what):
        resume(verification(run("plan", 1.0)), **change)


def test_a_row_with_other_settings_is_measured_again_where_the_machine_is_now() -> None:
    changed = [SettingRow(name="plan", settings=Settings(max_num_batched_tokens=4_096))]
    again = resume(verification(run("plan", 1.0)), changed, machine=None)
    assert (again.runs, again.machine) == ((), None)


def test_a_resumed_run_keeps_its_calibration_and_no_row_started_otherwise(
    monkeypatch, tmp_path
):
    asked, saved, calibration = [], [], SimpleNamespace(save=lambda _: saved.append(1))

    def measure(row, job, _log, _listener):
        asked.append((row.name, job.bursts))
        return run(row.name, engine={"entry": job.entry}), EngineRecord()

    monkeypatch.setattr(verify, "measure", measure)
    monkeypatch.setattr(verify, "calibration_of", lambda *_: calibration)
    monkeypatch.setattr(verify, "calibration_path", lambda *_: None)
    how = {
        "python": "",
        "engine": {},
        "entry": "serve",
        "workload": WORKLOAD,
        "warm_up": (),
    }
    job = EngineJob(**how, repeats=1, timeout_s=1, bursts=["all"])
    report = verify.Report(output=tmp_path / "verify.json")
    result = replace(verification(), runs=())
    for rows_, entry in ((ROWS[:1], "serve"), (ROWS, "serve"), (ROWS, "llm")):
        result = verify.measure_rows(
            result, rows_, replace(job, entry=entry), SHAPE, report
        )
    assert (asked, saved) == (
        [("plan", ["all"]), ("off", ()), ("plan", ()), ("off", ())],
        [1],
    )


def rows(planned, *, against=("default", "off"), also=(), longest=0):
    return [row.checked(longest) for row in rows_of(planned, against, also)]


def test_every_row_is_the_same_engine_but_for_what_is_compared() -> None:
    """Bugs 6 and 7: rows lost expert parallelism, the KV cache's type or the context."""
    common = {
        "max_model_len": 4_352,
        "tensor_parallel_size": 2,
        "enable_expert_parallel": True,
        "kv_cache_dtype": "fp8",
    }
    moe = plan(MIXED, model="qwen3-30b-a3b", tp=2, ep=True, kv_cache_dtype="fp8")
    against = ("default", "off", "length-rule")
    for row in rows(moe, against=against, also=["max-num-seqs=8"]):
        given = row.settings.given()
        assert {name: given.get(name) for name in common} == common, row.name


def test_the_plan_comes_first_then_what_it_is_compared_to() -> None:
    also = "max-num-batched-tokens=4096"
    planned, default, off, point = rows(plan(MIXED), also=[also])
    assert [row.name for row in (planned, default, off, point)] == [
        "plan",
        "default",
        "off",
        also,
    ]
    assert set(default.settings.given()) == {"max_model_len"}
    assert off.settings == replace(default.settings, enable_chunked_prefill=False)
    assert point.settings == replace(default.settings, max_num_batched_tokens=4_096)


def test_names_for_the_same_settings_are_measured_once() -> None:
    planned = plan([32_000], model="qwen2.5-7b-instruct")
    (row,) = rows(planned, against=("default", "length-rule"))
    assert (row.name, row.same_as) == ("plan", ("default", "length-rule"))
    assert row.settings == Settings()
    off, default = rows(plan([100]))
    assert (off.name, off.same_as, default.name) == ("plan", ("off",), "default")
    also = ["max-num-seqs=8", "max_num_seqs=8"]
    (_, point) = rows(plan(MIXED), against=(), also=also)
    assert (point.name, point.same_as) == (also[0], (also[1],))


def test_a_row_that_does_not_take_the_longest_request_is_refused() -> None:
    planned = plan_that_sets(MIXED, given={"max_model_len": 4_608})
    assert {row.refused for row in rows(planned, longest=4_608)} == {None}
    (row, *_) = rows(planned, longest=5_000)
    assert (row.refused.code, row.refused.values["longest"]) == (
        "context_too_short",
        5_000,
    )


@pytest.mark.parametrize(
    "text",
    ["max-num-batched-tokens", "max-batched-tokens=4", "max-num-seqs=many", "max-num-seqs=true",
     "enable-chunked-prefill=perhaps", "max-num-partial-prefills=2", "kv-cache-dtype=8", ""],
)  # fmt: skip
def test_what_is_no_argument_is_refused(text) -> None:
    with pytest.raises(UsageError, match="--also"):
        parse_point(text)


def test_points_are_settings_and_engine_arguments_are_json_where_they_are() -> None:
    point = parse_point("--gpu-memory-utilization=0.5,enable-chunked-prefill=false")
    assert point.given() == {
        "gpu_memory_utilization": 0.5,
        "enable_chunked_prefill": False,
    }
    parsed = parse_engine_args(
        ["--dtype=float32", "max-logprobs=5", 'hf-overrides={"a": 1}']
    )
    assert parsed == {"dtype": "float32", "max_logprobs": 5, "hf_overrides": {"a": 1}}
