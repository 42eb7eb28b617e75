"""Three hundred short multiple-choice questions: known facts, orders, small programs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from random import Random
from typing import NamedTuple

from tests.sample_data_parts.helpers import Row, distinct, rng_for, table
from tests.sample_data_parts.words import (
    CAPITALS,
    ELEMENTS,
    EVENTS,
    LANGUAGES,
    PLANETS,
    PROJECT_NOUNS,
    VOCABULARY,
)

GENERAL = table("""
    Which unit measures electrical resistance? | ohm | volt | ampere | farad;
    Which unit measures force? | newton | joule | watt | pascal;
    Which unit measures frequency? | hertz | lumen | tesla | kelvin;
    Which HTTP status code means that a resource was not found? | 404 | 301 | 500 | 204;
    Which HTTP status code means "too many requests"? | 429 | 403 | 502 | 201;
    Which data structure serves the element added last first? | stack | queue | heap | graph;
    What is the worst-case cost of binary search in a sorted list? | O(log n) | O(n) | O(1) |
      O(n²);
    Which organ produces insulin? | the pancreas | the liver | the spleen | the thyroid;
    Which gas do plants take in for photosynthesis? | carbon dioxide | oxygen | argon | helium;
    How many sides does a heptagon have? | seven | six | eight | nine;
    Which SI prefix stands for one billionth? | nano | micro | milli | pico;
    Which SI prefix stands for one million? | mega | giga | kilo | tera;
    Which layer of the Earth lies directly below the crust? | the mantle | the inner core | the
      outer core | the ionosphere;
    What do you call an angle of more than 90° and less than 180°? | obtuse | acute | right |
      reflex;
    Which of these animals is a marsupial? | koala | otter | badger | hedgehog;
    Which instrument belongs to the woodwind family? | clarinet | trumpet | viola | timpani;
    Which ocean lies between Africa and Australia? | the Indian Ocean | the Atlantic Ocean | the
      Arctic Ocean | the Caribbean Sea;
    Which blood cells carry oxygen? | red blood cells | white blood cells | platelets | stem cells;
    What is the square root of 2, to three decimal places? | 1.414 | 1.732 | 1.618 | 1.260
""")


class Quiz(NamedTuple):
    question: str
    right: str
    wrong: Sequence[str]


def others(rng: Random, pool: Iterable[str], right: str) -> list[str]:
    """Three wrong choices, all different from the right one and from each other."""
    return rng.sample([value for value in dict.fromkeys(pool) if value != right], 3)


def capital_quizzes(rng: Random) -> Iterator[Quiz]:
    capitals = [capital for _, capital in CAPITALS]
    for country, capital in CAPITALS:
        wrong = others(rng, capitals, capital)
        yield Quiz(f"What is the capital of {country}?", capital, wrong)


def element_quizzes(rng: Random) -> Iterator[Quiz]:
    names, symbols = zip(*ELEMENTS, strict=True)
    for number, (name, symbol) in enumerate(ELEMENTS, start=1):
        wrong = others(rng, symbols, symbol)
        yield Quiz(f"What is the chemical symbol of {name.lower()}?", symbol, wrong)
        if number % 2 == 0:
            wrong = others(rng, names, name)
            yield Quiz(f"Which element has the atomic number {number}?", name, wrong)


def vocabulary_quizzes(rng: Random) -> Iterator[Quiz]:
    meanings, *languages = zip(*VOCABULARY, strict=True)
    for language, known in zip(LANGUAGES, languages, strict=True):
        for meaning, word in zip(meanings, known, strict=True):
            wrong = others(rng, known, word)
            yield Quiz(f'Which {language} word means "{meaning}"?', word, wrong)


def year_quizzes(rng: Random) -> Iterator[Quiz]:
    for event, year in EVENTS:
        near = [str(int(year) + offset) for offset in (-23, -12, -7, 5, 9, 18)]
        yield Quiz(f"In which year was {event}?", year, others(rng, near, year))


def ordering_quiz(rng: Random, question: str, ranked: Sequence[str]) -> Quiz:
    """Ask for the right order of four things out of a list that is in order."""
    chosen = [ranked[place] for place in sorted(rng.sample(range(len(ranked)), 4))]
    orders = [", ".join(order) for order in permutations(chosen)]
    return Quiz(question, orders[0], others(rng, orders, orders[0]))


def ordering_quizzes(rng: Random) -> Iterator[Quiz]:
    elements = [name for name, _ in ELEMENTS]
    events = [event for event, _ in EVENTS]
    history = (
        "Historians like a clear order of events, from the earliest to the latest.\n"
        "Which of these lists is in that order?"
    )
    for count, question, ranked in (
        (9, "Which list goes from the Sun outwards?", PLANETS),
        (12, "Which list is ordered by atomic number, smallest first?", elements),
        (14, history, events),
    ):
        for _ in range(count):
            yield ordering_quiz(rng, question, ranked)


def general_quizzes() -> Iterator[Quiz]:
    for question, right, *wrong in GENERAL:
        yield Quiz(question, right, wrong)


def loop_quiz(rng: Random) -> Quiz:
    start, stop, step = rng.randint(0, 4), rng.randint(9, 20), rng.randint(2, 4)
    total = sum(range(start, stop, step))
    return Quiz(
        "What does this program print?\n\n"
        f"total = 0\nfor n in range({start}, {stop}, {step}):\n    total += n\nprint(total)",
        str(total),
        [str(total + stop), str(total - step), str(total + 1)],
    )


def slice_quiz(rng: Random) -> Quiz:
    values = rng.sample(range(10, 60), 6)
    a, b = rng.randint(0, 2), rng.randint(3, 5)
    return Quiz(
        f"Given the list below, what is values[{a}:{b}]?\n\nvalues = {values}",
        str(values[a:b]),
        [str(values[a : b + 1]), str(values[a + 1 : b + 1]), str(values[b:])],
    )


def word_quiz(rng: Random) -> Quiz:
    word = rng.choice(PROJECT_NOUNS).lower()
    return Quiz(
        f'What does this program print?\n\nword = "{word}"\nprint(word[::-1].upper())',
        word[::-1].upper(),
        [word.upper(), word[::-1], word[1:].upper()],
    )


def sequence_quiz(rng: Random) -> Quiz:
    term, factor, add = rng.randint(1, 6), rng.randint(2, 3), rng.randint(1, 5)
    shown = []
    for _ in range(5):
        shown.append(str(term))
        term = term * factor + add
    return Quiz(
        f"Which number continues the sequence {', '.join(shown)}?",
        str(term),
        [str(term + 10), str(term - factor), str(term + 1)],
    )


def quiz_row(rng: Random, quiz: Quiz) -> Row:
    choices = [quiz.right, *quiz.wrong]
    rng.shuffle(choices)
    fields = {f"choice_{letter}": choice for letter, choice in zip("abcd", choices, strict=True)}
    return {"question": quiz.question, **fields, "answer": "ABCD"[choices.index(quiz.right)]}


def rows() -> list[Row]:
    rng = rng_for("quiz")
    quizzes = [
        *capital_quizzes(rng),
        *element_quizzes(rng),
        *vocabulary_quizzes(rng),
        *year_quizzes(rng),
        *ordering_quizzes(rng),
        *general_quizzes(),
    ]
    computed = (loop_quiz, slice_quiz, word_quiz, sequence_quiz)
    quizzes += distinct(
        lambda: rng.choice(computed)(rng), 300 - len(quizzes), key=lambda quiz: quiz.question
    )
    rng.shuffle(quizzes)
    return [quiz_row(rng, quiz) for quiz in quizzes]
