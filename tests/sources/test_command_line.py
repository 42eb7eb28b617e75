"""What is read, and what is refused, as users meet it: through `chunkscope analyze`."""

import gzip
import json
import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

import chunkscope
from tests.commands.helpers import analyze
from tests.prompts import inspect_logs
from tests.remote_servers import served, web_server
from tests.sources.helpers import PACKERS, archive

TEXTS = ["hello there", "how are you, café?"]
RECORDS = [{"prompt": text} for text in TEXTS]
LINES = b"".join(
    json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in RECORDS
)
CSV = b'prompt\nhello there\n"how are you, caf\xc3\xa9?"\n'
DATA = {
    "x.jsonl": LINES,
    "x.json": json.dumps(RECORDS).encode(),
    "lines.json": LINES,
    "rows.json": json.dumps({"canary": "no", "examples": RECORDS}).encode(),
    "x.csv": CSV,
    "x.tsv": CSV,
    **{f"x.jsonl.{suffix}": pack(LINES) for suffix, pack in PACKERS.items()},
    **{f"{suffix}.jsonl": pack(LINES) for suffix, pack in PACKERS.items()},
    **{
        f"members.jsonl.{suffix}": pack(LINES[:9]) + pack(b"") + pack(LINES[9:])
        for suffix, pack in PACKERS.items()
    },
    "plain.jsonl.gz": LINES,
    "nameless": LINES,
}


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The histogram that every form of the data has."""
    place = tmp_path_factory.mktemp("reference")
    (place / "x.jsonl").write_bytes(LINES)
    return analyze(place, "x.jsonl").dataset["lengths"]


def test_every_text_format_and_compression(tmp_path: Path, lengths) -> None:
    for name, data in DATA.items():
        (tmp_path / name).write_bytes(data)
    run = analyze(tmp_path, *DATA)
    assert run.code == 0, run.err
    for dataset in run.profile["datasets"]:
        assert dataset["lengths"] == lengths, dataset["path"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le", "gb18030", "hex"])
def test_an_encoding_can_be_named_and_lines_of_text_are_prompts(
    tmp_path, lengths, encoding
):
    is_known = encoding != "hex"  # which is no encoding of text
    options = f'[analyze]\nencoding = "{encoding}"\nper_line = true\n'
    (tmp_path / "chunkscope.toml").write_text(options)
    for name, text in (("x.jsonl", LINES.decode()), ("x.txt", "\n".join(TEXTS))):
        (tmp_path / name).write_bytes(text.encode(encoding if is_known else "utf-8"))
    run = analyze(tmp_path, "x.jsonl", "x.txt")
    assert (run.code, is_known or encoding in run.err) == (
        0 if is_known else 2,
        True,
    ), run.err
    for dataset in run.profile["datasets"] if is_known else ():
        assert dataset["lengths"] == lengths, dataset["path"]


ARCHIVES = ["p.zip", "p.tar", "p.tar.gz", "p.tar.bz2", "p.tar.xz", "p.tar.zst", "p.tgz"]
MEMBERS = {
    "a/x.jsonl": LINES,
    "y.csv": CSV,
    "z.jsonl.gz": gzip.compress(LINES),
    "README": b"no",
}


def test_every_archive_table_and_saved_dataset(tmp_path: Path, lengths) -> None:
    import datasets
    import pyarrow.feather
    import pyarrow.parquet

    datasets.disable_progress_bars()
    table = pyarrow.Table.from_pylist(RECORDS)
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    pyarrow.feather.write_feather(table, str(tmp_path / "x.arrow"))
    rows = datasets.Dataset.from_list(RECORDS)
    rows.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict(test=rows).save_to_disk(tmp_path / "splits")
    (tmp_path / "x.parquet.gz").write_bytes(
        gzip.compress((tmp_path / "x.parquet").read_bytes())
    )
    for name in ARCHIVES:
        (tmp_path / name).write_bytes(archive(name, MEMBERS))
    others = ("x.parquet", "x.parquet.gz", "x.arrow", "saved", "splits")
    run = analyze(tmp_path, *others, *ARCHIVES)
    assert run.code == 0, run.err
    assert len(run.profile["datasets"]) == len(others) + 3 * len(ARCHIVES)
    for dataset in run.profile["datasets"]:
        assert dataset["lengths"] == lengths, dataset["path"]


@pytest.mark.parametrize("data", [LINES, gzip.compress(LINES)], ids=["jsonl", "gz"])
def test_standard_input(tmp_path: Path, lengths, data: bytes) -> None:
    run = analyze(tmp_path, "-", stdin=data)
    assert (run.code, run.dataset["lengths"]) == (0, lengths), run.err


def test_no_standard_input_is_an_empty_one(tmp_path: Path) -> None:
    closed = ["sh", "-c", f"{sys.executable} -m chunkscope analyze - <&-"]
    assert subprocess.run(closed, cwd=tmp_path, check=False).returncode == 3


# --- other machines -------------------------------------------------------------------


def test_web_addresses_are_read_and_keep_their_secrets(tmp_path: Path, lengths) -> None:
    files = DATA | {name: archive(name, MEMBERS) for name in ARCHIVES}
    answers = {f"/{name}": (200, data, len(data)) for name, data in files.items()}
    with web_server(answers) as address:
        run = analyze(tmp_path, f"{address}/x.jsonl?sig=hidden")
        others = analyze(tmp_path, *(f"{address}/{name}" for name in files))
    assert run.dataset["path"] == f"{address}/x.jsonl"
    assert b"hidden" not in (run.written or b"")
    for one in (run, others):
        assert {str(d["lengths"]) for d in one.profile["datasets"]} == {str(lengths)}, (
            one.err
        )
    assert len(others.profile["datasets"]) == len(DATA) + 3 * len(ARCHIVES)


def test_a_web_server_without_ranges_is_read_from_front_to_back(
    tmp_path: Path, lengths
) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "x.jsonl").write_bytes(LINES)
    handler = type(
        "Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None}
    )
    with served(partial(handler, directory=str(tmp_path / "www"))) as address:
        run = analyze(tmp_path, f"{address}/x.jsonl")
    assert (run.code, run.dataset["lengths"]) == (0, lengths), run.err


def test_a_file_that_is_cut_on_its_way_is_a_failure_and_the_others_count(
    tmp_path: Path,
) -> None:
    answers = {
        "/cut.jsonl": (200, LINES * 9_000, len(LINES) * 9_000 + 3_000),
        "/few.csv": (200, CSV, len(CSV)),
        "/bad.csv": (500, b"", 0),
    }
    with web_server(answers) as address:
        both = analyze(tmp_path, f"{address}/cut.jsonl", f"{address}/few.csv")
        bad = analyze(tmp_path, f"{address}/bad.csv")
        none = analyze(tmp_path, f"{address}/none.csv")
    cut, few = both.profile["datasets"]
    assert (both.code, sum(few["lengths"]["counts"].values())) == (3, 2)
    assert f"{address}/cut.jsonl" in str(cut["failure"])
    assert (bad.code, f"{address}/bad.csv" in bad.err) == (4, True)
    assert (none.code, f"{address}/none.csv" in none.err) == (3, True)


# --- hostile and broken input ---------------------------------------------------------


def refused(place: Path, *words: str | Path, code: int = 3) -> str:
    run = analyze(place, *words)
    assert run.code == code, run.err
    assert "hint:" in run.err
    assert "Traceback" not in run.err
    return run.err


@pytest.mark.parametrize("name", [*ARCHIVES, "x.eval"])
def test_a_truncated_archive_is_refused(tmp_path: Path, name: str) -> None:
    whole = archive(name, {"x.jsonl": os.urandom(9_000).hex().encode()})
    if name == "x.eval":
        sample = inspect_logs.sample(1, inspect_logs.event("hi"))
        whole = inspect_logs.zipped(inspect_logs.members(sample))
    (tmp_path / "d").mkdir()
    for place in (tmp_path, tmp_path / "d"):
        (place / name).write_bytes(whole[: len(whole) // 2])
    assert name in refused(tmp_path, name)
    (tmp_path / "d" / "a.jsonl").write_bytes(LINES)
    assert re.search(rf"(?m)^error: .*d/{name}", refused(tmp_path, "d")), (
        "nor skipped in a folder"
    )


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.zip").write_bytes(archive("p.zip", {"x.txt": b"a" * (40 << 20)}))
    assert "p.zip/x.txt" in refused(tmp_path, "p.zip")


PROMPTS = [*['"a b"'] * 5, "3", "{}", "[3]", '"\\ud800"']
CHATS = [
    *['[{"role": "user", "content": ""}]'] * 6,
    "[]",
    "3",
    "[3]",
    '[{"role": "x"}]',
    "[{}]",
]
BROKEN = {
    "cells.csv": b'question,n\nwhy,3\nso\n\xe9,3\n"open',
    "chats.jsonl": "\n".join(f'{{"messages": {chat}}}' for chat in CHATS).encode(),
    "bare.jsonl": b"{}",
    "odd.jsonl": b'{"alpha": "a b", "beta": "c d"}',
    "rows.jsonl": "\n".join(
        [*(f'{{"prompt": {one}}}' for one in PROMPTS), "{}", "[]"]
    ).encode(),
    "nul.jsonl": b"\0" * 5_000,
    "text.parquet": b"PAR1 and then not",
    "cut.jsonl.gz": gzip.compress(LINES)[:30],
    "half.json": b'[{"prompt": "a"}, ',
}


def test_what_is_wrong_is_said_and_kept_as_codes_and_values(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in ({"fine.jsonl": LINES} | BROKEN).items():
        (tmp_path / name).write_bytes(data)
    run = analyze(tmp_path, "fine.jsonl", *BROKEN)
    assert run.code == 3, run.err
    fine, *broken = run.profile["datasets"]
    assert fine["failure"] is None
    for dataset in broken:
        assert dataset["failure"] or dataset["skipped"], dataset["path"]
        assert dataset["path"] in run.err or dataset["name"] in ("odd", "bare")
        if dataset["failure"]:  # Python says the same, where nothing else was counted
            with pytest.raises(chunkscope.ChunkscopeError) as raised:
                chunkscope.analyze(dataset["path"])
            assert (
                f"error: {dataset['name']}: {raised.value}".partition("\n")[0]
                in run.err
            )
            assert raised.value.__notes__[0] in run.err
    kept = json.dumps([(dataset["bad_rows"], dataset["failure"]) for dataset in broken])
    assert not re.search(
        "[a-z]+ [a-z]+ ", re.sub('"why": ".*?"', "", kept)
    )  # a library said why
    assert len({*re.findall('"code": "(.*?)"', kept)}) == 17
