"""What names and values say of a field: a prompt, something that is never one, or a mere label."""

import re
from collections.abc import Sequence
from functools import lru_cache

# Surest first. Many sets spell them with a capital.
TEXT_FIELDS = (
    *("prompt", "question", "input", "inputs", "text", "instruction", "query", "problem"),
    *("problem_statement", "task", "content", "sentence", "turns", "prompts", "questions"),
    *("goal", "intent", "premise", "ctx", "passage", "document", "article", "context", "story"),
)
# These names often hold a label, or the name of a file, beside a prompt of another name.
OFTEN_LABELS = {"task", "content", "goal", "text", "input", "document", "context", "intent"}
# A part of a longer name that says as much: `question_content`, `user_prompt`.
PROMPT_WORDS = {
    *("prompt", "question", "instruction", "query", "problem", "task", "intent", "statement"),
}
# Inside an object called `question` or `prompt`, what is asked.
TEXT_KEYS = ("text", "stem", "content", "question", "prompt", "value", "body")
# Lists of them stand for one prompt each where answers of the same number stand beside.
ASKED_ONE_BY_ONE = {"instructions", "questions", "queries", "prompts", "tasks"}
# Parts of names of fields that hold what the model should say, or that no prompt is made of.
_NOT_PROMPT = re.compile(
    "(answer|output|target|response|solution|completion|label|reference|explanation|rationale"
    "|test|code|gold|golden|expected|chosen|rejected|generated|generation|prediction|canary"
    "|metadata|meta|id|uid|uuid|url|hash|canonical|cot|ideal|annotation"
    "|patch|diff|score|summary|highlight|critique|feedback|file|filename|path|uri|sha|md5|digest"
    "|date|timestamp|version|type|difficulty|title|tag|author|license|log|observation|concept"
    "|template|bot|assistant|gpt|truth)s?"
)
_WORD = re.compile(r"[\w./:@#~%&=+-]+", re.ASCII)
_MARK = re.compile(r"[\d_/]|::|\.\w{1,5}$", re.ASCII)
_MOMENT_OR_PLACE = re.compile(r"\d{4}-\d\d-\d\d[ T][\d:.+Z-]+|\w+://\S+")


def name_parts(name: str) -> list[str]:
    """`"longAnswer_text"` -> `["long", "answer", "text"]`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z]+\d*", spaced.lower())


@lru_cache(4096)
def is_no_prompt(name: str) -> bool:
    """Whether a name speaks of an answer, an identifier or something about the row.

    >>> is_no_prompt("long_answer"), is_no_prompt("question_id"), is_no_prompt("question")
    (True, True, False)
    """
    return any(map(_NOT_PROMPT.fullmatch, name_parts(name)))


def are_identifiers(values: Sequence[str]) -> bool:
    """Whether texts are ids, hashes, numbers, dates, addresses or names of files.

    >>> are_identifiers(["multi_turn_0", "9b1deb4d"]), are_identifiers(["Why?", "swe_main"])
    (True, False)
    """
    texts = [value.strip() for value in values if value.strip()]
    return bool(texts) and all(
        (_WORD.fullmatch(text) and _MARK.search(text)) or _MOMENT_OR_PLACE.fullmatch(text)
        for text in texts
    )


def are_labels(values: Sequence[str]) -> bool:
    """Whether texts are a few short words over and over, such as the name of a subtask."""
    short = all(len(value) <= 40 for value in values)
    return len(values) > 3 and short and len(set(values)) * 2 <= len(values)


def is_prose(text: str) -> bool:
    """More than one word, or a script that has no blanks between words."""
    return " " in text.strip() or not text.isascii()
