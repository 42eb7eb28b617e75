import errno
import gzip
import os
from unittest.mock import Mock

import pytest

from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import Problems, ReadOptions
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader
from tests.sources.helpers import archive, read

ROW = b'{"question": "why?"}\n'


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Write files below an empty folder that is also the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(files):
        for name, data in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return tmp_path

    return write


def find(*paths, options=None, **filters):
    return discover(
        [str(path) for path in paths], options=options or ReadOptions(), **filters
    )


def names(*paths, **filters):
    return [source.name for source in find(*paths, **filters)[0]]


def skipped(*paths, **filters):
    return {skip.values["file"] for skip in find(*paths, **filters)[1]}


# --- files and folders ----------------------------------------------------------------


def test_a_folder_is_walked_in_order_and_each_folder_is_a_group(tree):
    root = tree(
        {
            "data/b.csv": b"a,b\n1,2\n",
            "data/a.jsonl.gz": gzip.compress(ROW),
            "data/r/x.json": b"[]",
        }
    )
    assert [(s.name, s.group, s.path, s.format) for s in find("data/")[0]] == [
        ("a", "data", "data/a.jsonl.gz", "jsonl"),
        ("b", "data", "data/b.csv", "csv"),
        ("r/x", "data/r", "data/r/x.json", "json"),
    ]
    (alone,), _ = find("data/b.csv")
    assert (alone.name, alone.group, alone.path, alone.bytes) == (
        "b",
        "",
        "data/b.csv",
        8,
    )
    here = [(s.group, s.path) for s in find(".")[0]]
    assert here[2] == (f"{root.name}/data/r", "data/r/x.json"), (
        "the current folder by its name"
    )


def test_what_is_left_out_of_a_folder_is_said(tree):
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\r"
    others = {
        "requirements.txt": b"",
        "LICENSE": b"",
        "license-mit.txt": b"",
        "run.py": b"print()",
    }
    others |= {
        "a.png": picture,
        "b.jsonl": picture,
        "dataset_infos.json": b"",
        "config.json": b"",
    }
    hidden = {".hidden.jsonl": ROW, ".git/x.jsonl": ROW}
    files = {"x.jsonl": ROW, "licensed_drivers.txt": b"a prompt"} | others | hidden
    tree({f"data/{name}": data for name, data in files.items()})
    assert names("data") == ["licensed_drivers", "x"]
    assert skipped("data") == {f"data/{name}" for name in others}


@pytest.mark.parametrize(
    ("data", "format_name"),
    [
        pytest.param(ROW, "json", id="json"),
        pytest.param(gzip.compress(ROW * 2), "jsonl", id="compressed lines"),
    ],
)
def test_a_file_named_by_itself_is_known_by_its_content(tree, data, format_name):
    tree({"x.data": data})
    result = read("x.data")
    assert (result.format, result.error) == (format_name, None)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"just text", id="text"),
        pytest.param(b"question,answer\nwhy,x\n", id="a table"),
        pytest.param(b"x" * 50 + b"caf\xe9", id="Latin-1"),
        pytest.param(archive("p.zip", {"x.jsonl": ROW}), id="an archive"),
        pytest.param(archive("p.tar", {"x.jsonl": ROW}), id="a tar"),
        pytest.param(b"\x89PNG\0\0\0", id="a picture"),
    ],
)
def test_a_file_whose_format_cannot_be_told_is_refused_with_what_to_set(tree, data):
    tree({"x.data": data})
    assert "--input-format" in read("x.data").error.hint


def test_text_without_a_suffix_is_read_as_the_options_say(tree):
    tree({"x.data": b"just text"})
    assert read("x.data", input_format="text").records == ["just text"]


def test_a_format_can_be_forced_also_of_what_an_archive_holds(tree):
    tree(
        {"d/x.data": ROW, "d/y.txt": ROW, "d/z.zip": archive("z.zip", {"x.data": ROW})}
    )
    sources, _ = find("d", options=ReadOptions(input_format="jsonl"))
    assert [s.name for s in sources if s.format == "jsonl"] == [
        "x.data",
        "y",
        "z/x.data",
    ]
    with pytest.raises(UsageError, match="--input-format"):
        find("d", options=ReadOptions(input_format="pickle"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission_is_an_error_for_a_named_file_and_a_skip_in_a_folder(tree):
    tree({"data/x.jsonl": ROW, "data/y.jsonl": ROW}).joinpath("data/x.jsonl").chmod(0)
    with pytest.raises(InputError, match=r"x\.jsonl"):
        find("data/x.jsonl")
    assert skipped("data") == {"data/x.jsonl"}


def test_a_file_in_a_folder_that_may_not_be_entered_is_not_called_missing(
    tree, monkeypatch
):
    tree({"data/x.jsonl": ROW})
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    for name in ("lstat", "listdir"):
        monkeypatch.setattr(os, name, Mock(side_effect=error))
    with pytest.raises(InputError, match=error.strerror.lower()):
        find("data/x.jsonl")


def test_links_that_loop_end_and_each_real_file_counts_once(tree):
    root = tree({"data/x.jsonl": ROW, "data/sub/y.jsonl": ROW})
    (root / "data/sub/up").symlink_to(root / "data")
    (root / "data/again.jsonl").symlink_to(root / "data/x.jsonl")
    (root / "data/self.jsonl").symlink_to(root / "data/self.jsonl")
    (root / "data/gone.jsonl").symlink_to(root / "nowhere")
    assert names("data", "data/x.jsonl") == ["again", "sub/y"]
    assert skipped("data") == {"data/self.jsonl", "data/gone.jsonl"}


def test_a_pipe_named_by_itself_is_read_once():
    reading, writing = os.pipe()
    os.write(writing, ROW * 3)
    os.close(writing)
    assert len(read(f"/dev/fd/{reading}").records) == 3
    os.close(reading)


# --- globs ----------------------------------------------------------------------------


def test_a_glob_finds_files_below_its_fixed_part(tree):
    tree({"data/a/x.jsonl": ROW, "data/b/c/x.jsonl": ROW, "data/b/y.csv": b"a,b\n"})
    sources, _ = find("data/**/*.jsonl")
    assert [(s.name, s.group) for s in sources] == [
        ("a/x", "data/a"),
        ("b/c/x", "data/b/c"),
    ]
    assert names("data/*/x.jsonl") == ["a/x"]
    assert names("data/*") == ["a/x", "b/c/x", "b/y"]
    tree({"x[1].jsonl": ROW, "x1.jsonl": ROW})
    assert names("x[1].jsonl") == ["x[1]"], "a name that exists is no glob"


# --- exclude, names -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        pytest.param("a.jsonl", ["b", "s/c"], id="a name"),
        pytest.param("s", ["a", "b"], id="a folder"),
        pytest.param("s/c*", ["a", "b", "s/a"], id="a path"),
        pytest.param("**/*.jsonl", ["b"], id="no folder or any"),
    ],
)
def test_exclude_matches_a_path_a_folder_of_it_or_its_name(tree, pattern, left):
    tree(
        {"d/a.jsonl": ROW, "d/b.csv": b"a,b\n", "d/s/a.jsonl": ROW, "d/s/c.jsonl": ROW}
    )
    assert names("d", exclude=[pattern]) == left


def test_nothing_left_is_an_error_that_counts_what_was_left_out(tree):
    tree({"d/a.jsonl": ROW, "d/b.png": b"\x89PNG\0\0\0"})
    with pytest.raises(InputError, match=r"1 skipped \(binary\), 1 excluded"):
        find("d", exclude=["*.jsonl"])


def test_names_that_clash_are_short_paths(tree):
    tree({"d/x.jsonl": ROW, "d/x.csv": b"a,b\n", "e/x.jsonl": ROW, "e/y.jsonl": ROW})
    assert names("d") == ["x.csv", "x.jsonl"]
    assert names("d/x.jsonl", "e/x.jsonl", "e/y.jsonl") == [
        "d/x.jsonl",
        "e/x.jsonl",
        "y",
    ]


# --- archives -------------------------------------------------------------------------

MEMBERS = {
    "inner/a.jsonl": ROW,
    "b.csv": b"question,answer\nwhy,x\n",
    "c.jsonl.gz": gzip.compress(ROW * 5),
    "README.md": b"about",
    "more.zip": b"PK\x03\x04",
    "../out.jsonl": ROW,
    ".hidden.jsonl": ROW,
    "__MACOSX/inner/._a.jsonl": b"\0\0",
}


@pytest.mark.parametrize("name", ["p.zip", "p.tar", "p.tar.gz"])
def test_each_member_is_a_source_read_in_any_order_and_the_archive_its_group(
    tree, name
):
    tree({"data/x.jsonl": ROW, f"data/{name}": archive(name, MEMBERS)})
    sources, left_out = find("data")
    assert [(s.name, s.group, s.path) for s in sources] == [
        ("p/inner/a", f"data/{name}", f"data/{name}/inner/a.jsonl"),
        ("p/b", f"data/{name}", f"data/{name}/b.csv"),
        ("p/c", f"data/{name}", f"data/{name}/c.jsonl.gz"),
        ("x", "data", "data/x.jsonl"),
    ]
    left = {skip.values["file"].removeprefix(f"data/{name}/") for skip in left_out}
    assert left == {"README.md", "more.zip", "../out.jsonl"}
    assert [len(read(sources[i]).records) for i in (2, 0, 0, 1)] == [5, 1, 1, 1]


def test_members_read_at_the_same_time_do_not_disturb_each_other(tree):
    tree({"p.tar.gz": archive("p.tar.gz", MEMBERS)})
    sources, _ = find("p.tar.gz")
    options = ReadOptions()
    with RecordReader(sources[2], options, Problems()) as last:
        last.head()
        with RecordReader(sources[0], options, Problems()) as first:
            assert [len(c.records) for c in first.chunks()] == [1]
        assert sum(len(c.records) for c in last.chunks()) == 5
