"""What a server said, token by token, with log-probabilities: in the shapes that servers use."""

from collections.abc import Iterator
from math import isfinite
from typing import Any

import orjson

from chunkscope.verification.outputs import Spoken


class NoLogprobsError(ValueError):
    """The server does not tell them."""


def answer_in(body: bytes) -> tuple[Spoken, ...]:
    """The tokens of an answer, each with the likeliest others.

    >>> answer_in(b'{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -0.5}]}}]}')
    ((('a', -0.5),),)
    """
    return tuple(_spoken(*told) for told in _told(_choice(body).get("logprobs")))


def score_in(body: bytes, prompt: list[int], tokens: int) -> float:
    """Of the last tokens of a prompt: by vLLM's own list, or of a prompt that is echoed."""
    choice, found = _choice(body), orjson.loads(body)
    listed = choice.get("prompt_logprobs") or found.get("prompt_logprobs")
    if isinstance(listed, list) and len(listed) == len(prompt):
        pairs = zip(prompt[-tokens:], listed[-tokens:], strict=True)
        return sum(_number(_part(_part(seen, str(token)), "logprob")) for token, seen in pairs)
    echoed = [logprob for _, logprob, _ in _told(choice.get("logprobs"))]
    if len(echoed) < len(prompt):
        raise NoLogprobsError
    return sum(map(_number, echoed[len(prompt) - tokens : len(prompt)]))


def _choice(body: bytes) -> dict[str, Any]:
    found = orjson.loads(body)["choices"][0]
    if not isinstance(found, dict):
        raise NoLogprobsError
    return found


def _told(logprobs: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Token, log-probability and the likeliest, of completions and of chats."""
    if not isinstance(logprobs, dict):
        raise NoLogprobsError
    if isinstance(chat := logprobs.get("content"), list):
        for part in chat:
            token, logprob = _part(part, "token"), _part(part, "logprob")
            tops = part.get("top_logprobs") or ()
            yield token, logprob, {_part(top, "token"): _part(top, "logprob") for top in tops}
        return
    tokens, found = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(found, list) or len(tokens) != len(found):
        raise NoLogprobsError
    listed = logprobs.get("top_logprobs")
    if not isinstance(listed, list) or len(listed) != len(tokens):
        listed = [None] * len(tokens)
    for token, logprob, top in zip(tokens, found, listed, strict=True):
        yield token, logprob, top if isinstance(top, dict) else {}


def _spoken(token: str, logprob: Any, tops: dict[str, Any]) -> Spoken:
    others = ((other, _number(value)) for other, value in tops.items() if other != token)
    return ((str(token), _number(logprob)), *others)


def _part(found: Any, name: str) -> Any:
    if not isinstance(found, dict) or name not in found:
        raise NoLogprobsError
    return found[name]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise NoLogprobsError
    return float(value)
