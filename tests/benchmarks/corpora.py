"""The texts the benchmarks count, built from this machine and kept in a work folder.

    few_shot    what an evaluation harness sends: long shared prefixes, short questions
    unique      documents that repeat nothing, so that only the tokenizer's own speed shows
    gsm8k       the questions alone, where start-up is most of the time
    small_files 2,000 JSON documents of some questions each
    cjk         Japanese, Chinese and Korean sentences of manuals and translations
    chats       conversations of several turns in a parquet file
    sample_data the folder that comes with chunkscope

Run alone to build them: python corpora.py WORK_DIR few_shot unique_15 unique_100
"""

from __future__ import annotations

import argparse
import csv
import gettext
import gzip
import hashlib
import json
import math
import random
import re
import struct
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SEED = 20_261_115
# A corpus of another recipe is built anew: raise this when the text would come out different.
RECIPE = 2

ROW_BYTES_MIN, ROW_BYTES_MAX = 200, 30_000
# Past this a source file is mostly a generated table (Unicode ranges, word lists).
FILE_BYTES_MAX = 1_000_000
# Shorter paragraphs ("else:", "Cancel", "NAME") repeat in all real text; longer repeats are
# licences, vendored copies and templates, which would flatter whoever caches.
REPEAT_BYTES_MIN = 40
# Share of each kind in unique text while it lasts; the others fill up for one that runs out.
SHARES = {"prose": 0.4, "code": 0.4, "non-English": 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A jsonl file and what is in it."""

    name: str
    path: Path
    field: str
    rows: int
    text_bytes: int
    note: str

    @property
    def text_mb(self) -> float:
        return self.text_bytes / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stamp:
    """What lies beside a stored corpus, to know it again without reading it."""

    recipe: int
    file_bytes: int
    rows: int
    text_bytes: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    rows: list[str]
    note: str


def few_shot(shared: Path, work: Path) -> Corpus:
    """MMLU 5-shot, GSM8K 8-shot and BBH chain-of-thought prompts, about 64 MB, shuffled."""
    return _stored("few_shot", work, lambda: _few_shot_text(shared / "data"))


def mmlu(shared: Path, work: Path, *, shuffled: bool = False) -> Corpus:
    """All 14,042 test questions of MMLU with five shots each, subject by subject or mixed."""

    def made() -> _Text:
        rows = list(_mmlu(shared / "data"))
        if shuffled:
            random.Random(SEED).shuffle(rows)
        return _Text(rows=rows, note="57 subjects" + ", shuffled" * shuffled)

    return _stored("mmlu_shuffled" if shuffled else "mmlu", work, made)


def unique(mb: int, work: Path) -> Corpus:
    """`mb` million bytes of documents from this machine, no paragraph twice."""
    return _stored(f"unique_{mb}", work, lambda: _unique_text(mb * 1_000_000))


def gsm8k(shared: Path) -> Corpus:
    """The 1,319 test questions, as they are distributed."""
    path = shared / "data" / "gsm8k" / "test.jsonl"
    with path.open("rb") as lines:
        sizes = [len(json.loads(line)["question"].encode()) for line in lines]
    return Corpus(
        name="gsm8k",
        path=path,
        field="question",
        rows=len(sizes),
        text_bytes=sum(sizes),
        note="test questions without their answers",
    )


def sample_data(root: Path) -> Corpus:
    path = root / "sample_data"
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return Corpus(
        name="sample_data", path=path, field="", rows=0, text_bytes=size, note="files as they are"
    )


def small_files(shared: Path, work: Path) -> Corpus:
    """Three of GSM8K's training questions in each of 2,000 files."""
    path, rng = work / "small_files", random.Random(SEED)
    rows = _json_lines(shared / "data" / "gsm8k" / "train.jsonl")
    drawn = [rng.sample(rows, 3) for _ in range(2000)]
    if not path.is_dir():
        path.mkdir(parents=True)
        for number, some in enumerate(drawn):
            (path / f"{number:04}.json").write_text(json.dumps(some))
    return Corpus(
        name="small_files",
        path=path,
        field="question",
        rows=3 * len(drawn),
        text_bytes=sum(len(row["question"].encode()) for some in drawn for row in some),
        note="three questions a file",
    )


def cjk(mb: int, work: Path) -> Corpus:
    """Rows of sentences drawn at random, each as it is in a manual page or a translation."""

    def made() -> _Text:
        rng = random.Random(SEED)
        files = [path for path in _system_files() if _kind(path) == "non-English"]
        text = "\n".join(part for path in files for part in _paragraphs(path))
        sentences = re.split(r"(?<=[\u3002\uff01\uff1f\n])", text)
        sentences = [s for s in dict.fromkeys(sentences) if len(_CJK.findall(s)) * 2 > len(s) > 8]
        rows: list[str] = []
        size = 0
        while size < mb * 1_000_000:
            rows.append("".join(rng.choices(sentences, k=rng.randint(5, 60))))
            size += len(rows[-1].encode())
        return _Text(rows=rows, note=f"{len(sentences)} sentences, drawn with repetition")

    return _stored(f"cjk_{mb}", work, made)


_CJK = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


def chats(mb: int, shared: Path, work: Path) -> Corpus:
    """Conversations of one to six turns: questions and answers of GSM8K, each pair once or more."""
    path = work / f"chats_{mb}.parquet"
    rng, size = random.Random(SEED), 0
    rows = _json_lines(shared / "data" / "gsm8k" / "train.jsonl")
    made: list[list[dict[str, str]]] = []
    while size < mb * 1_000_000:
        turns = rng.sample(rows, rng.randint(1, 6))
        messages = [
            {"role": role, "content": turn[part]}
            for turn in turns
            for role, part in (("user", "question"), ("assistant", "answer"))
        ][:-1]
        made.append(messages)
        size += sum(len(message["content"].encode()) for message in messages)
    if not path.is_file():
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"messages": made}), path)
    return Corpus(
        name=path.stem, path=path, field="messages", rows=len(made), text_bytes=size,
        note="GSM8K's training questions as turns",
    )  # fmt: skip


def _stored(name: str, work: Path, make: Callable[[], _Text]) -> Corpus:
    path = work / f"{name}.jsonl"
    stamp = _read_stamp(path)
    if stamp is None:
        stamp = _write(path, make())
    return Corpus(
        name=name,
        path=path,
        field="text",
        rows=stamp.rows,
        text_bytes=stamp.text_bytes,
        note=stamp.note,
    )


def _stamp_path(path: Path) -> Path:
    return path.with_suffix(".stamp.json")


def _read_stamp(path: Path) -> _Stamp | None:
    try:
        stamp = _Stamp(**json.loads(_stamp_path(path).read_bytes()))
        known = stamp.recipe == RECIPE and stamp.file_bytes == path.stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    return stamp if known else None


def _write(path: Path, text: _Text) -> _Stamp:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="\n") as out:
        for number, row in enumerate(text.rows):
            out.write(json.dumps({"id": number, "text": row}, ensure_ascii=False) + "\n")
    partial.replace(path)
    stamp = _Stamp(
        recipe=RECIPE,
        file_bytes=path.stat().st_size,
        rows=len(text.rows),
        text_bytes=sum(len(row.encode()) for row in text.rows),
        note=text.note,
    )
    _stamp_path(path).write_text(json.dumps(asdict(stamp)))
    return stamp


# --- few-shot prompts -----------------------------------------------------------------------


def _few_shot_text(data: Path) -> _Text:
    parts = {"MMLU": list(_mmlu(data)), "GSM8K": list(_gsm8k(data)), "BBH": list(_bbh(data))}
    rows = [row for part in parts.values() for row in part]
    random.Random(SEED).shuffle(rows)
    return _Text(rows=rows, note=", ".join(f"{len(part)} {name}" for name, part in parts.items()))


def _mmlu(data: Path) -> Iterator[str]:
    """Prompts in the wording of the paper's own script."""
    for test in sorted((data / "mmlu" / "test").glob("*.csv")):
        subject = test.stem.removesuffix("_test")
        shots = _csv_rows(data / "mmlu" / "dev" / f"{subject}_dev.csv")[:5]
        head = (
            "The following are multiple choice questions (with answers) about "
            f"{subject.replace('_', ' ')}.\n\n"
        )
        head += "".join(f"{_mmlu_question(s)} {'ABCD'[int(s['answer'])]}\n\n" for s in shots)
        yield from (head + _mmlu_question(row) for row in _csv_rows(test))


def _mmlu_question(row: dict[str, str]) -> str:
    choices = "".join(f"\n{letter}. {row[f'choice{i}']}" for i, letter in enumerate("ABCD"))
    return f"{row['question']}{choices}\nAnswer:"


def _csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _gsm8k(data: Path) -> Iterator[str]:
    train, test = (_json_lines(data / "gsm8k" / f"{part}.jsonl") for part in ("train", "test"))
    shots = random.Random(SEED).sample(train, 8)
    head = "".join(f"Question: {shot['question']}\nAnswer: {shot['answer']}\n\n" for shot in shots)
    yield from (f"{head}Question: {row['question']}\nAnswer:" for row in test)


def _json_lines(path: Path) -> list[dict[str, str]]:
    with path.open("rb") as lines:
        return [json.loads(line) for line in lines]


def _bbh(data: Path) -> Iterator[str]:
    for task in sorted((data / "bbh" / "bbh").glob("*.json")):
        prompt = (data / "bbh" / "cot-prompts" / f"{task.stem}.txt").read_text(encoding="utf-8")
        # The canary line and its rule are for crawlers; no harness sends them.
        head = prompt.split("-----\n", 1)[1].rstrip("\n")
        for example in json.loads(task.read_bytes())["examples"]:
            yield f"{head}\n\nQ: {example['input']}\nA: Let's think step by step."


# --- unique text ----------------------------------------------------------------------------


def _unique_text(target_bytes: int) -> _Text:
    """Take rows from the kind that lags its share most, until there is enough."""
    rng = random.Random(SEED)
    seen: set[bytes] = set()
    sources = {kind: _rows(files, seen, rng) for kind, files in _files_by_kind(rng).items()}
    taken = dict.fromkeys(sources, 0)
    rows: list[str] = []
    while sources and sum(taken.values()) < target_bytes:
        kind = min(sources, key=lambda kind: taken[kind] / SHARES[kind])
        row = next(sources[kind], None)
        if row is None:
            del sources[kind]
            continue
        rows.append(row)
        taken[kind] += len(row.encode())
    taken["generated"] = 0
    while sum(taken.values()) < target_bytes:
        rows.append(_generated(rng))
        taken["generated"] += len(rows[-1].encode())
    rng.shuffle(rows)
    return _Text(rows=rows, note=", ".join(f"{n / 1e6:.1f} MB {kind}" for kind, n in taken.items()))


def _files_by_kind(rng: random.Random) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {kind: [] for kind in SHARES}
    for path in (*_system_files(), *_python_files()):
        kind = _kind(path)
        if kind is not None:
            files[kind].append(path)
    for paths in files.values():
        rng.shuffle(paths)
    return files


def _system_files() -> Iterator[Path]:
    share = Path("/usr/share")
    for folder in ("man", "doc", "locale", "vim", "perl"):
        yield from sorted(p for p in (share / folder).rglob("*") if p.is_file())


def _python_files() -> Iterator[Path]:
    """Sources under the library folders; of a package installed twice, the first found."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    roots = [stdlib, Path(sysconfig.get_path("purelib")), Path("/usr/lib/python3/dist-packages")]
    seen: set[str] = set()
    for root in roots:
        for path in sorted(p for p in root.rglob("*") if p.suffix in _KIND_BY_SUFFIX):
            name = re.split(r"/(?:site|dist)-packages/", str(path.relative_to(root.parent)))[-1]
            if name not in seen and path.is_file():
                seen.add(name)
                yield path


_KIND_BY_SUFFIX = {
    **dict.fromkeys((".py", ".pyi", ".pm", ".pl", ".vim", ".c", ".h", ".sh"), "code"),
    **dict.fromkeys((".txt", ".md", ".rst", ".pod"), "prose"),
}


def _kind(path: Path) -> str | None:
    """The kind of text a file holds, None for one that is not taken.

    /usr/share/man/ja/man1/ls.1.gz   non-English
    /usr/share/man/man1/ls.1.gz      prose
    /usr/share/doc/bash/NEWS.gz      prose
    """
    parts = path.parts
    if path.suffix == ".mo":
        return None if path.parts[4].startswith("en") else "non-English"
    if parts[:4] == ("/", "usr", "share", "man"):
        return "prose" if parts[4].startswith("man") else "non-English"
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    in_docs = parts[:4] == ("/", "usr", "share", "doc")
    is_plain_name = suffix in ("", ".Debian") or suffix[1:].isdigit()
    return "prose" if in_docs and is_plain_name else _KIND_BY_SUFFIX.get(suffix)


def _rows(files: Iterable[Path], seen: set[bytes], rng: random.Random) -> Iterator[str]:
    for path in files:
        text = "\n\n".join(_new(_paragraphs(path), seen))
        for row in _cut(text, rng):
            # No two rows begin alike: a shared opening is what prefix reuse would live on.
            head = _hash(row[:64].encode())
            if head not in seen:
                seen.add(head)
                yield row


def _new(paragraphs: Iterable[str], seen: set[bytes]) -> Iterator[str]:
    """Leave out what was there before, here or in another file."""
    for paragraph in paragraphs:
        # Blind to numbers and spacing, so that templates filled with other figures count as same.
        key = re.sub(r"[\W\d]+", "", paragraph).encode()
        if len(key) < REPEAT_BYTES_MIN:
            yield paragraph
        elif (digest := _hash(key)) not in seen:
            seen.add(digest)
            yield paragraph


def _hash(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=8).digest()


def _cut(text: str, rng: random.Random) -> Iterator[str]:
    """Cut into rows of log-uniform size, at a line's end where one is near."""
    start = 0
    while start < len(text):
        size = math.exp(rng.uniform(math.log(ROW_BYTES_MIN), math.log(ROW_BYTES_MAX)))
        end = start + int(size)
        line_end = text.rfind("\n", start + int(size * 0.8), end)
        row = text[start : end if line_end < 0 else line_end].strip()
        start = end if line_end < 0 else line_end
        row = row.encode()[:ROW_BYTES_MAX].decode(errors="ignore")
        if len(row.encode()) >= ROW_BYTES_MIN:
            yield row


def _paragraphs(path: Path) -> list[str]:
    if path.suffix == ".mo":
        return _translations(path)
    text = _read(path)
    if path.parts[:4] == ("/", "usr", "share", "man"):
        text = _plain(text)
    return [part.strip("\n") for part in re.split(r"\n[ \t]*\n", text) if part.strip()]


def _read(path: Path) -> str:
    """A file's text, empty for one that is binary, huge or in an old encoding."""
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        text = raw.decode() if len(raw) <= FILE_BYTES_MAX and b"\0" not in raw else ""
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile):
        return ""
    return text.replace("\r\n", "\n")


def _translations(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            catalog = gettext.GNUTranslations(file)
    except (OSError, ValueError, LookupError, struct.error):
        return []
    # gettext keeps the catalog private; there is no public way to list what it holds.
    messages: dict[object, str] = vars(catalog)["_catalog"]
    return [message for key, message in messages.items() if key and message != key]


_ROFF_COMMENT = re.compile(r"^[.'][ \t]*\\\".*\n", re.MULTILINE)
_ROFF_BREAK = re.compile(r"^[.'][ \t]*(?:PP|P|LP|sp|TP|IP|RS|RE|nf|fi|Pp|It|El)\b.*$", re.MULTILINE)
_ROFF_HEADING = re.compile(r"^[.'][ \t]*(?:SH|SS|Sh|Ss)\b[ \t]*\"?(.*?)\"?$", re.MULTILINE)
_ROFF_MACRO = re.compile(r"^[.'][ \t]*[A-Za-z]+[ \t]*", re.MULTILINE)
_ROFF_FONT = re.compile(r"\\f(?:\[[^\]]*\]|\(..|.)|\\[&/,|^]|\\s[-+]?\d")


def _plain(roff: str) -> str:
    """A manual page without most of its markup: good enough for text to count."""
    text = _ROFF_COMMENT.sub("", roff)
    text = _ROFF_BREAK.sub("", text)
    text = _ROFF_HEADING.sub(r"\n\1\n", text)
    text = _ROFF_MACRO.sub("", text)
    return _ROFF_FONT.sub("", text).replace("\\-", "-").replace("\\(aq", "'")


def _generated(rng: random.Random) -> str:
    """Words of random syllables: the last resort, where a machine holds too little text."""
    size = math.exp(rng.uniform(math.log(ROW_BYTES_MIN), math.log(ROW_BYTES_MAX)))
    words: list[str] = []
    while sum(map(len, words)) + len(words) < size:
        syllables = (rng.choice("bcdfghklmnprstvz") + rng.choice("aeiou") for _ in range(4))
        words.append("".join(list(syllables)[: rng.randint(1, 4)]))
    return " ".join(words)


def build(name: str, shared: Path, work: Path) -> Corpus:
    """The corpus of a name: few_shot, gsm8k, or unique_MB."""
    if name == "few_shot":
        return few_shot(shared, work)
    if name == "gsm8k":
        return gsm8k(shared)
    return unique(int(name.removeprefix("unique_")), work)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build benchmark corpora.")
    parser.add_argument("work", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    options = parser.parse_args()
    for name in options.names:
        corpus = build(name, options.shared, options.work)
        print(f"{corpus.path}: {corpus.rows} rows, {corpus.text_mb:.1f} MB ({corpus.note})")


if __name__ == "__main__":
    main()
