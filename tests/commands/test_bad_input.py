"""Bad data, as it is found in the wild: said with file and line, counted, and never a traceback."""

import bz2
import ctypes
import gzip
import json
import lzma
import os
import pickle
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from chunkscope.sources import json_rows, opening, tables
from tests.commands.helpers import Run, analyze, analyze_apart, prompts, write_jsonl

GOOD = b'{"prompt": "one two three"}\n'


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def assert_counted(run: Run, *, rows: int, skipped: int) -> None:
    assert run.code == (3 if skipped else 0), run.err
    assert run.dataset["rows"] == rows
    assert run.dataset["skipped"] == skipped
    assert "Traceback" not in run.err


# --- bad rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "at", "reason"),
    [
        pytest.param(GOOD + b'{"prompt": "tw\n' + GOOD, 2, "does not end", id="a broken line"),
        pytest.param(GOOD + GOOD + b'{"prompt": "th', 3, "(truncated?)", id="a cut last line"),
        pytest.param(GOOD + b'{"prompt": null}\n' + GOOD, 2, "is null", id="null"),
        pytest.param(GOOD + b'{"other": "x"}\n' + GOOD, 2, "is missing", id="a missing field"),
        pytest.param(GOOD + b'{"prompt": 5}\n' + GOOD, 2, "a number, not text", id="a number"),
        pytest.param(GOOD + b'{"prompt": {}}\n' + GOOD, 2, "an object, not text", id="an object"),
        pytest.param(GOOD + b"[1]\n" + GOOD, 2, "is missing", id="a row that is no object"),
        pytest.param(
            GOOD + b'{"prompt": "caf\xe9"}\n' + GOOD, 2, "try --encoding latin-1", id="Latin-1"
        ),
        pytest.param(
            GOOD + b'{"prompt": "\\ud800"}\n' + GOOD,
            2,
            "the prompt holds a lone surrogate (\\ud800 to \\udfff), which is no character",
            id="half a pair",
        ),
        pytest.param(
            GOOD + b'{"prompt": "\xed\xa0\x80"}\n' + GOOD, 2, "not UTF-8", id="a surrogate in UTF-8"
        ),
        pytest.param(
            GOOD + b'{"prompt": "a\0b"}\n' + GOOD, 2, "control character", id="a bare NUL byte"
        ),
        pytest.param(GOOD + b'{"prompt": "a"}{}\n' + GOOD, 2, "more after", id="two on one line"),
        pytest.param(
            GOOD + b'{"prompt": ' + b"[" * 100_000 + b"\n" + GOOD, 2, "", id="nested without end"
        ),
        pytest.param(
            GOOD + b'{"prompt": ' + b"[" * 1000 + b'"x"' + b"]" * 1000 + b"}\n" + GOOD,
            2,
            "nested too deeply",
            id="nested 1,000 deep",
        ),
        pytest.param(GOOD + b'{"prompt": ' + b"9" * 5000 + b"}\n" + GOOD, 2, "", id="5,000 digits"),
    ],
)
def test_a_bad_row_is_said_with_file_and_line_and_the_others_count(
    tmp_path: Path, data: bytes, at: int, reason: str
) -> None:
    write(tmp_path / "bad.jsonl", data)
    run = analyze(tmp_path, "bad.jsonl")
    assert_counted(run, rows=2, skipped=1)
    (said,) = [line for line in run.err.splitlines() if line.startswith("bad row: ")]
    assert said.startswith(f"bad row: bad.jsonl line {at}: ")
    assert reason in said
    assert "1 bad rows were left out of the figures" in run.err
    assert run.dataset["bad_rows"][0]["position"] == at


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(GOOD.replace(b"\n", b"\r\n") * 2, id="CRLF"),
        pytest.param(b"\xef\xbb\xbf" + GOOD * 2, id="a byte order mark"),
        pytest.param(b"\n" + GOOD + b"  \r\n\n" + GOOD, id="blank lines"),
        pytest.param((GOOD * 2).rstrip(b"\n"), id="no newline at the end"),
        pytest.param((GOOD * 2).decode().encode("utf-16"), id="UTF-16 with its mark"),
        pytest.param(GOOD + b'{"prompt": "one\\u0000two\\u2028 three"}\n', id="NUL and U+2028"),
    ],
)
def test_what_is_odd_but_right_is_no_bad_row(tmp_path: Path, data: bytes) -> None:
    write(tmp_path / "odd.jsonl", data)
    assert_counted(analyze(tmp_path, "odd.jsonl"), rows=2, skipped=0)


@pytest.mark.parametrize("name", ["odd.jsonl", "odd.json"])
@pytest.mark.parametrize(
    "prompt", ["good", [{"role": "user", "content": "good"}]], ids=["text", "chat"]
)
def test_a_lone_surrogate_beside_the_prompt_costs_no_row(
    tmp_path: Path, name: str, prompt: Any
) -> None:
    row = json.dumps({"id": "\ud800", "prompt": prompt, "\udc00": "x"}).encode()
    write(tmp_path / name, b"[%s, %s]" % (row, row) if name == "odd.json" else (row + b"\n") * 2)
    assert_counted(analyze(tmp_path, name, "--no-chat-template"), rows=2, skipped=0)


def test_a_lone_surrogate_in_a_conversation_is_a_bad_row(tmp_path: Path) -> None:
    chats = [[{"role": "user", "content": content}] for content in ("good", "\ud800")]
    write_jsonl(tmp_path / "chat.jsonl", [{"messages": chat} for chat in chats])
    run = analyze(tmp_path, "chat.jsonl", "--no-chat-template")
    assert_counted(run, rows=1, skipped=1)
    assert "chat.jsonl line 2: the prompt holds a lone surrogate" in run.err


def test_windows_files_have_the_same_lengths_as_others(tmp_path: Path) -> None:
    write(tmp_path / "unix.csv", b"question,answer\nhow far?,3\nand back?,4\n")
    write(tmp_path / "windows.csv", b"\xef\xbb\xbfquestion,answer\r\nhow far?,3\r\nand back?,4\r\n")
    run = analyze(tmp_path, "unix.csv", "windows.csv")
    unix, windows = run.profile["datasets"]
    assert unix["histogram"] == windows["histogram"]
    assert windows["field"] == "question"


def test_latin_1_is_read_when_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "old.jsonl", '{"prompt": "café crème"}\n'.encode("latin-1"))
    write_jsonl(tmp_path / "new.jsonl", [{"prompt": "café crème"}])
    refused = analyze(tmp_path, "old.jsonl")
    assert refused.code == 3
    assert "try --encoding latin-1" in refused.err
    old = analyze(tmp_path, "old.jsonl", "--encoding", "latin-1")
    assert old.code == 0
    assert old.dataset["histogram"] == analyze(tmp_path, "new.jsonl").dataset["histogram"]


def test_the_first_20_bad_rows_are_said_then_how_many_more(tmp_path: Path) -> None:
    write(tmp_path / "bad.jsonl", GOOD + b"oops\n" * 25)
    write(tmp_path / "more.jsonl", GOOD + b"oops\n" * 25)
    run = analyze(tmp_path, "bad.jsonl", "more.jsonl")
    assert run.code == 3
    assert run.err.count("bad row: ") == 20
    assert "... and 30 more bad rows" in run.err
    assert "50 bad rows were left out" in run.err
    assert run.profile["overall"]["skipped"] == 50
    assert [dataset["skipped"] for dataset in run.profile["datasets"]] == [25, 25]


def test_skip_bad_rows_exits_0_and_still_says_them(tmp_path: Path) -> None:
    write(tmp_path / "bad.jsonl", GOOD + b"oops\n")
    run = analyze(tmp_path, "bad.jsonl", "--skip-bad-rows")
    assert run.code == 0
    assert "bad row: bad.jsonl line 2" in run.err
    assert run.dataset["skipped"] == 1


def test_mixed_schemas_count_what_fits_and_name_what_does_not(tmp_path: Path) -> None:
    rows = [*prompts(5), {"question": "no prompt here"}, {"messages": []}, *prompts(2)]
    run = analyze(tmp_path, write_jsonl(tmp_path / "mixed.jsonl", rows))
    assert_counted(run, rows=7, skipped=2)
    assert [row["position"] for row in run.dataset["bad_rows"]] == [6, 7]


def test_when_no_row_is_usable_that_is_an_error_and_no_profile(tmp_path: Path) -> None:
    write(tmp_path / "bad.jsonl", b"oops\n" * 3)
    run = analyze(tmp_path, "bad.jsonl")
    assert run.code == 3
    assert "none of the 3 rows" in run.err
    assert "bad.jsonl" in run.err
    assert not (tmp_path / "reports").exists()


def test_a_large_csv_cell_survives_another_table_that_ends_first(tmp_path: Path) -> None:
    """csv's limit on a cell is one for the whole process; the tables are read side by side."""
    row = "what is it?," + "x " * 30 + "\n"
    (tmp_path / "a.csv").write_text("question,answer\n" + row * 4_000)
    (tmp_path / "b.csv").write_text(
        "question,answer\n" + row * 60_000 + 'what?,"' + "y " * 100_000 + '"\n'
    )
    run = analyze(tmp_path, "a.csv", "b.csv")
    assert run.code == 0, run.err
    assert run.profile["overall"]["rows"] == 64_001


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.txt", "a.json"])
def test_a_row_that_would_fill_the_memory_ends_the_file_and_not_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A few kilobytes of gzip can hold a line of many gigabytes."""
    for module in (json_rows, tables):
        monkeypatch.setattr(module, "MOST_ROW_BYTES", 2 << 20)
    monkeypatch.setattr(json_rows, "MOST_DOCUMENT_BYTES", 2 << 20)
    start = {"a.csv": b"prompt,n\none,1\n", "a.json": b'[{"prompt": "'}.get(name, b"")
    write(tmp_path / f"{name}.gz", gzip.compress(start + b"a" * (8 << 20)))
    run = analyze(tmp_path, f"{name}.gz")
    assert run.code == 3
    assert f"{name}.gz" in run.err


# --- files that are not what they seem ------------------------------------------------------------


PACKERS = {
    ".gz": (gzip.compress, lambda: zlib.decompressobj(wbits=31)),
    ".bz2": (bz2.compress, bz2.BZ2Decompressor),
    ".xz": (lzma.compress, lzma.LZMADecompressor),
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_the_rows_before_a_cut_in_a_compressed_file_count(tmp_path: Path, suffix: str) -> None:
    pack, unpacker = PACKERS[suffix]
    rows = (b'{"prompt": "row %d %s"}\n' % (n, b"%x" % (n**9)) for n in range(40_000))
    packed = pack(b"".join(rows))
    cut = packed[: len(packed) * 3 // 4]
    write(tmp_path / f"cut.jsonl{suffix}", cut)
    run = analyze(tmp_path, f"cut.jsonl{suffix}")
    assert run.code == 3
    assert "ends early" in run.err
    assert "was the download or the copy interrupted?" in run.err
    assert run.dataset["rows"] == unpacker().decompress(cut).count(b"\n") > 10_000
    assert run.dataset["failure"]


def test_skip_bad_rows_does_not_excuse_a_file_that_is_cut(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b'{"prompt": "%d"}\n' % n for n in range(20_000)))
    write(tmp_path / "cut.jsonl.gz", packed[: len(packed) // 2])
    assert analyze(tmp_path, "cut.jsonl.gz", "--skip-bad-rows").code == 3


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize(
    "data", [pytest.param(GOOD, id="plain text"), pytest.param(b"", id="nothing")]
)
def test_what_only_claims_to_be_compressed_is_an_error_that_says_so(
    tmp_path: Path, suffix: str, data: bytes
) -> None:
    write(tmp_path / f"fake.jsonl{suffix}", data)
    run = analyze(tmp_path, f"fake.jsonl{suffix}")
    assert run.code == 3
    assert "is not" in run.err
    assert "rename it without the suffix" in run.err


def test_one_file_that_fails_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data" / "good.jsonl", prompts())
    write(tmp_path / "data" / "fake.jsonl.gz", GOOD)
    run = analyze(tmp_path, "data")
    assert run.code == 3
    assert "error: fake: data/fake.jsonl.gz is not gzip data" in run.err
    rows = {dataset["name"]: dataset["rows"] for dataset in run.profile["datasets"]}
    assert rows == {"good": 3, "fake": 0}


def test_an_empty_file_by_itself_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "empty.jsonl", b"")
    run = analyze(tmp_path, "empty.jsonl")
    assert run.code == 3
    assert "there are no rows in empty.jsonl" in run.err


def test_an_empty_file_among_others_is_a_note(tmp_path: Path) -> None:
    write(tmp_path / "empty.jsonl", b"")
    write_jsonl(tmp_path / "good.jsonl", prompts())
    run = analyze(tmp_path, "empty.jsonl", "good.jsonl")
    assert run.code == 0
    assert "note: empty: there are no rows in it" in run.err


def test_an_empty_folder_is_an_error_with_the_formats_there_are(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    run = analyze(tmp_path, "nothing")
    assert run.code == 3
    assert "no datasets in nothing: there are no files" in run.err
    assert "jsonl" in run.err


def test_a_binary_file_in_a_folder_is_skipped_and_said(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data" / "good.jsonl", prompts())
    write(tmp_path / "data" / "weights.bin", bytes(range(256)) * 50)
    write(tmp_path / "data" / "picture.jsonl", b"\x89PNG\r\n\x1a\n" + bytes(200))
    run = analyze(tmp_path, "data")
    assert run.code == 0
    assert "skipped data/picture.jsonl: binary" in run.err
    assert "skipped data/weights.bin: binary" in run.err
    assert [dataset["name"] for dataset in run.profile["datasets"]] == ["good"]


def test_what_chunkscope_wrote_itself_is_not_taken_for_data(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "good.jsonl", prompts())
    assert analyze(tmp_path, ".").code == 0
    again = analyze(tmp_path, ".")
    assert again.code == 0
    assert "skipped reports/profile.json: written by chunkscope itself" in again.err
    assert len(again.profile["datasets"]) == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        pytest.param("nope.jsonl", "no such file or folder: nope.jsonl", id="no such file"),
        pytest.param("nope/*.jsonl", "nothing matches nope/*.jsonl", id="a glob without matches"),
        pytest.param("", "a path is empty", id="a shell variable that is not set"),
        pytest.param("x" * 5000, "cannot read", id="a name that is too long"),
        pytest.param("hf:", "not a hub dataset", id="hf: and nothing more"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_sentence_with_a_hint(
    tmp_path: Path, path: str, said: str
) -> None:
    run = analyze(tmp_path, path)
    assert run.code in (2, 3)
    assert said in run.err
    assert "hint: " in run.err


def test_a_dataset_that_is_not_on_the_hub_is_something_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("hf:nobody/nothing-of-the-kind@test", "hf:nobody/nothing-of-the-kind"):
        run = analyze(tmp_path, name)
        assert run.code == 4, run.err
        assert "is not in the local cache" in run.err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--field", "a["], id="a field path that is not one"),
        pytest.param(["--template", "{"], id="a lone brace"),
        pytest.param(["--template", "no field"], id="a template without a field"),
        pytest.param(["--template", "{prompt}", "--field", "prompt"], id="field and template"),
        pytest.param(["--encoding", "klingon"], id="an unknown encoding"),
        pytest.param(["--encoding", "rot13"], id="an encoding that is none of text"),
        pytest.param(["--input-format", "xml"], id="an unknown format"),
        pytest.param(["--delimiter", "ab", "--input-format", "csv"], id="a delimiter of two"),
        pytest.param(["--chat-date", "tomorrow"], id="a date that is none"),
        pytest.param(["--sample", "0"], id="a sample of nothing"),
        pytest.param(["--seed", "9" * 30], id="a seed without end"),
        pytest.param(["--show-longest", "-1"], id="less than none"),
        pytest.param(["--format", "xml"], id="an unknown output"),
        pytest.param(["--name", "a", "--name", "b"], id="two names for one dataset"),
        pytest.param(["--template", "\udcff{prompt}"], id="bytes that are no text"),
        pytest.param(["--tokenizer", ""], id="a tokenizer variable that is not set"),
        pytest.param(["--no-chat-template", "--apply-chat-template"], id="with and without"),
        pytest.param(["--json", "--format", "csv"], id="two outputs"),
        pytest.param(["--unheard-of"], id="an unknown option"),
    ],
)
def test_a_command_line_that_makes_no_sense_exits_2(tmp_path: Path, words: list[str]) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    run = analyze(tmp_path, "a.jsonl", *words)
    assert run.code == 2, run.err
    assert "Traceback" not in run.err
    assert not (tmp_path / "reports").exists()


# --- the file system ------------------------------------------------------------------------------


def without_roots_privilege() -> None:
    """Root may read everything; without these two capabilities it is held to the file's mode."""
    if os.getuid() == 0:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability)


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_file_or_folder_without_permission_is_said(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data" / "good.jsonl", prompts())
    write_jsonl(tmp_path / "data" / "secret.jsonl", prompts()).chmod(0)
    (tmp_path / "data" / "locked").mkdir(mode=0)

    run = analyze_apart(tmp_path, "data", preexec_fn=without_roots_privilege)
    assert run.code == 0, run.err
    assert "skipped data/locked: permission denied" in run.err
    assert "skipped data/secret.jsonl: permission denied" in run.err
    for named in ("data/secret.jsonl", "data/locked"):
        run = analyze_apart(tmp_path, named, preexec_fn=without_roots_privilege)
        assert run.code == 3
        assert f"no permission to read {named}" in run.err


def test_a_file_that_vanishes_after_it_was_found_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "data" / "stays.jsonl", prompts())
    goes = write_jsonl(tmp_path / "data" / "goes.jsonl", prompts())
    usual = opening.open_raw

    def vanish(*place: Any, **how: Any) -> Any:
        goes.unlink(missing_ok=True)
        return usual(*place, **how)

    monkeypatch.setattr(opening, "open_raw", vanish)
    run = analyze(tmp_path, "data", "--no-cache")
    assert run.code == 3
    assert "error: goes: data/goes.jsonl is gone" in run.err
    assert {d["name"]: d["rows"] for d in run.profile["datasets"]} == {"stays": 3, "goes": 0}


@pytest.mark.parametrize("path", ["loop", "loop/**", "loop/**/*.jsonl"])
def test_links_that_lead_in_circles_end(tmp_path: Path, path: str) -> None:
    """Two of them in one folder are enough to make Python's own glob run for ever."""
    write_jsonl(tmp_path / "loop" / "deeper" / "a.jsonl", prompts())
    for name in ("one", "two", "three"):
        (tmp_path / "loop" / name).symlink_to(".")
    (tmp_path / "loop" / "deeper" / "up").symlink_to("../..")
    (tmp_path / "loop" / "self.jsonl").symlink_to("self.jsonl")
    run = analyze(tmp_path, path)
    assert run.code == 0, run.err
    assert run.dataset["rows"] == 3


def test_folders_nested_deeper_than_pythons_stack_are_no_problem(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(1100):
            os.mkdir("d", dir_fd=here)
            deeper = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
    finally:
        os.close(here)
    write_jsonl(tmp_path / "a.jsonl", prompts())
    try:
        run = analyze(tmp_path, ".")
        assert (run.code, run.dataset["rows"]) == (0, 3)
    finally:  # pytest's own cleaning up would fail
        os.system(f"rm -rf '{tmp_path}/d'")


def test_files_of_the_same_name_get_names_that_differ(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_jsonl(tmp_path / folder / "test.jsonl", prompts())
    write_jsonl(tmp_path / "test.jsonl", prompts())
    (tmp_path / "test.csv").write_text("prompt,x\nhow far?,1\nand back?,2\n")
    run = analyze(tmp_path, "a", "b", "test.jsonl", "test.csv")
    names = [dataset["name"] for dataset in run.profile["datasets"]]
    assert len(set(names)) == 4
    assert run.code == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(b"caf\xe9.jsonl", id="Latin-1"),
        pytest.param(b"\xff\xfe.jsonl", id="no text at all"),
        pytest.param(b"two\nlines.jsonl", id="a newline"),
        pytest.param(b"\x1b[31mred\x1b[0m.jsonl", id="terminal codes"),
        pytest.param(b"[red]x[bold].jsonl", id="markup"),
        pytest.param("🎉 :smile:.jsonl".encode(), id="emoji"),
    ],
)
def test_any_file_name_can_be_counted_and_shown_on_one_line(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / os.fsdecode(name)).write_bytes(GOOD + b"oops\n")
    run = analyze(tmp_path, "data", "--show-longest", "3")
    assert run.code == 3
    assert run.dataset["rows"] == 1
    assert "\x1b" not in run.out + run.err
    row = run.out.splitlines()[3]
    assert row.split()[-9:] == ["1", "4", "4", "4", "4", "0", "%", "0", "%"]
    assert len([line for line in run.err.splitlines() if line.startswith("bad row: ")]) == 1
    assert analyze(tmp_path, os.fsdecode(b"data/" + name)).code == 3


# --- nothing in data is executed ------------------------------------------------------------------


class _Mine:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.flag),)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    flag = tmp_path / "executed"
    data = pickle.dumps([_Mine(flag)])
    for name in ("a.pkl", "b.jsonl", "c.parquet", "d.arrow", "e.json", "f.csv", "g"):
        write(tmp_path / name, data)
        assert analyze(tmp_path, name).code == 3
    assert analyze(tmp_path, ".").code == 3
    assert not flag.exists()


def test_a_loading_script_beside_the_data_is_never_run(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "squad" / "data.jsonl", prompts())
    script = tmp_path / "squad" / "squad.py"
    script.write_text(f"import os\nos.mkdir({str(tmp_path / 'executed')!r})\n")
    run = analyze(tmp_path, "squad")
    assert run.code == 0
    assert "skipped squad/squad.py: unknown suffix" in run.err
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ 7 * 7 }} {prompt}",
        "{% for x in range(9) %}{prompt}",
    ],
)
def test_a_template_with_jinja_in_it_is_plain_text_or_an_error(
    tmp_path: Path, template: str
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": "how far?"}])
    run = analyze(tmp_path, "a.jsonl", "--template", template)
    if run.code == 0:
        write_jsonl(tmp_path / "a.jsonl", [{"prompt": "{ 7 * 7 } how far?"}])
        assert run.dataset["histogram"] == analyze(tmp_path, "a.jsonl").dataset["histogram"]
    else:
        assert run.code in (2, 3)


@pytest.mark.parametrize(
    "template",
    ["{__class__}", "{prompt.__class__}", "{prompt!r}", "{prompt:>10000000}", "{0}", "{prompt[0]}"],
)
def test_a_template_reaches_nothing_but_fields(tmp_path: Path, template: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": "how far?"}])
    run = analyze(tmp_path, "a.jsonl", "--template", template)
    assert run.code in (2, 3)
    assert "no record has a field" in run.err


def test_a_tokenizer_that_is_a_program_is_not_run_unasked(tmp_path: Path) -> None:
    flag = tmp_path / "executed"
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["mine.Mine", None]}, "tokenizer_class": "Mine"})
    )
    (folder / "config.json").write_text(json.dumps({"model_type": "mine"}))
    (folder / "mine.py").write_text(f"import os\nos.mkdir({str(flag)!r})\n")
    write_jsonl(tmp_path / "a.jsonl", prompts())
    run = analyze(tmp_path, "a.jsonl", "--tokenizer", folder)
    assert run.code == 3
    assert "--trust-remote-code" in run.err
    assert not flag.exists()


def test_an_archive_cannot_write_outside_or_at_all(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "evil.zip", "w") as archive:
        archive.writestr("../../escaped.jsonl", GOOD)
        archive.writestr("/tmp/absolute.jsonl", GOOD)
        archive.writestr("fine.jsonl", GOOD)
    before = sorted(tmp_path.rglob("*"))
    run = analyze(tmp_path, "in/evil.zip")
    assert run.code == 0
    assert sorted({*tmp_path.rglob("*")} - {*before}) == [
        tmp_path / "reports",
        tmp_path / "reports" / "profile.json",
    ]
