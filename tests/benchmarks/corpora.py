"""The texts that bench_analyze counts: built from this machine and ../shared, kept for
next time.

few-shot     what a harness sends: MMLU 5-shot, GSM8K 8-shot, BBH chain of thought,
shuffled unique-MB    documents of this machine that repeat nothing: only the
tokenizer's speed shows first-run    GSM8K's questions alone, where start-up is most of
the time small-files  2,000 JSON documents of three questions each chats-MB
conversations of several turns in a parquet file sample-data  the folder that comes with
chunkscope
"""

import csv
import hashlib
import json
import math
import random
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 20_261_115
ROOT = Path(__file__).resolve().parents[2]
ROW_BYTES = (200, 30_000)  # least and most, of unique text
FILE_BYTES_MAX = 1_000_000  # past this a source file is mostly a generated table


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    path: Path
    field: str

    @property
    def mb(self) -> float:
        files = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def corpus_of(name: str, shared: Path, work: Path) -> Corpus:
    kind, _, size = name.partition("-")
    data = shared / "data"
    if kind == "first":
        return Corpus(path=data / "gsm8k" / "test.jsonl", field="question")
    if kind == "sample":
        return Corpus(path=ROOT / "sample_data", field="")
    if kind == "small":
        return Corpus(path=_small_files(data, work / "small_files"), field="question")
    if kind == "chats":
        path = work / f"chats_{size}.parquet"
        return Corpus(path=_chats(int(size), data, path), field="messages")
    path = work / f"{name}.jsonl"
    if not path.exists():
        rows = _few_shot(data) if kind == "few" else _unique(int(size) * 1_000_000)
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as out:
            for number, row in enumerate(rows):
                out.write(
                    json.dumps({"id": number, "text": row}, ensure_ascii=False) + "\n"
                )
        partial.replace(path)
    return Corpus(path=path, field="text")


def _small_files(data: Path, folder: Path) -> Path:
    if not folder.is_dir():
        folder.mkdir(parents=True)
        chance, rows = random.Random(SEED), _json_lines(data / "gsm8k" / "train.jsonl")
        for number in range(2_000):
            (folder / f"{number:04}.json").write_text(
                json.dumps(chance.sample(rows, 3))
            )
    return folder


def _chats(mb: int, data: Path, path: Path) -> Path:
    """Conversations of one to six turns: questions and answers of GSM8K."""
    if path.is_file():
        return path
    import pyarrow
    import pyarrow.parquet

    chance, size = random.Random(SEED), 0
    rows = _json_lines(data / "gsm8k" / "train.jsonl")
    chats: list[list[dict[str, str]]] = []
    while size < mb * 1_000_000:
        messages = [
            {"role": role, "content": turn[part]}
            for turn in chance.sample(rows, chance.randint(1, 6))
            for role, part in (("user", "question"), ("assistant", "answer"))
        ][:-1]
        chats.append(messages)
        size += sum(len(message["content"].encode()) for message in messages)
    pyarrow.parquet.write_table(pyarrow.table({"messages": chats}), path)
    return path


# --- few-shot prompts ---------------------------------------------------------------


def _few_shot(data: Path) -> list[str]:
    rows = [*mmlu(data), *gsm8k(data), *bbh(data)]
    random.Random(SEED).shuffle(rows)
    return rows


def mmlu(data: Path) -> Iterator[str]:
    for test in sorted((data / "mmlu" / "test").glob("*.csv")):
        subject = test.stem.removesuffix("_test")
        shots = _csv_rows(data / "mmlu" / "dev" / f"{subject}_dev.csv")[:5]
        about = subject.replace("_", " ")  # in the wording of the paper's own script
        head = "The following are multiple choice questions (with answers) about "
        head += f"{about}.\n\n"
        for shot in shots:
            letter = "ABCD"[int(shot["answer"])]
            head += f"{_question(shot)} {letter}\n\n"
        yield from (head + _question(row) for row in _csv_rows(test))


def _question(row: dict[str, str]) -> str:
    choices = "".join(
        f"\n{letter}. {row[f'choice{i}']}" for i, letter in enumerate("ABCD")
    )
    return f"{row['question']}{choices}\nAnswer:"


def gsm8k(data: Path) -> Iterator[str]:
    train, test = (
        _json_lines(data / "gsm8k" / f"{part}.jsonl") for part in ("train", "test")
    )
    shots = random.Random(SEED).sample(train, 8)
    head = "".join(
        f"Question: {shot['question']}\nAnswer: {shot['answer']}\n\n" for shot in shots
    )
    yield from (f"{head}Question: {row['question']}\nAnswer:" for row in test)


def bbh(data: Path) -> Iterator[str]:
    for task in sorted((data / "bbh" / "bbh").glob("*.json")):
        prompt = (data / "bbh" / "cot-prompts" / f"{task.stem}.txt").read_text(
            encoding="utf-8"
        )
        head = prompt.split("-----\n", 1)[1].rstrip(
            "\n"
        )  # without the line for crawlers
        for example in json.loads(task.read_bytes())["examples"]:
            yield f"{head}\n\nQ: {example['input']}\nA: Let's think step by step."


def _csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _json_lines(path: Path) -> list[dict[str, str]]:
    with path.open("rb") as lines:
        return [json.loads(line) for line in lines]


# --- unique text --------------------------------------------------------------------


def _unique(size: int) -> list[str]:
    """Rows of this machine's sources and documents; where they run out, the same turned
    round."""
    chance, seen = random.Random(SEED), set[bytes]()
    roots = (
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        "/usr/share/doc",
    )
    suffixes = {".py", ".pyi", ".md", ".rst", ".txt", ".h", ".c", ".js"}
    files = sorted(
        {p for root in roots for p in Path(root).rglob("*") if p.suffix in suffixes}
    )
    chance.shuffle(files)
    rows: list[str] = []
    total = 0
    for row in _rows(files, seen, chance):
        rows.append(row)
        total += len(row.encode())
        if total >= size:
            break
    first = len(rows)
    while (
        total < size
    ):  # each begins elsewhere, so that no two prompts share a beginning
        row = rows[len(rows) % first]
        cut = chance.randrange(len(row))
        rows.append(row[cut:] + row[:cut])
        total += len(row.encode())
    chance.shuffle(rows)
    return rows


def _rows(
    files: Iterable[Path], seen: set[bytes], chance: random.Random
) -> Iterator[str]:
    for path in files:
        text, start = _read(path), 0
        while start < len(text):
            size = int(math.exp(chance.uniform(*map(math.log, ROW_BYTES))))
            row = text[start : start + size].strip()
            start += size
            head = hashlib.blake2b(row[:64].encode(), digest_size=8).digest()
            if len(row.encode()) >= ROW_BYTES[0] and head not in seen:
                seen.add(head)  # no two rows begin alike
                yield row


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return raw.decode() if len(raw) <= FILE_BYTES_MAX and b"\0" not in raw else ""
    except (OSError, UnicodeDecodeError):
        return ""
