from chunkscope.sources.json_rows import not_utf8
from tests.sources.helpers import read, shared


def test_a_text_file_is_one_prompt_as_it_is(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"line one\r\nline two\n\n")
    result = read(path)
    assert (result.records, result.positions) == (["line one\r\nline two\n\n"], [1])


def test_per_line_each_line_is_a_prompt_and_blank_ones_are_not(tmp_path):
    path = tmp_path / "x.md"
    path.write_bytes("one\r\n\n  \ntwo\u2028still two\nthree".encode())
    result = read(path, per_line=True)
    assert result.records == ["one", "two\u2028still two", "three"]
    assert (result.positions, result.unit) == ([1, 4, 5], "line")


def test_latin_1_is_a_bad_row_that_says_where(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")
    assert read(path).bad == [(1, f"line 2: {not_utf8(0xE9, 4)}")]
    assert read(path, per_line=True).bad == [(2, not_utf8(0xE9, 4))]
    assert read(path, encoding="latin-1").records == ["fine\ncafé\n"]


def test_a_real_prompt_is_read_whole():
    path = shared("bbh", "cot-prompts", "snarks.txt")
    assert read(path).records == [path.read_text(encoding="utf-8")]
