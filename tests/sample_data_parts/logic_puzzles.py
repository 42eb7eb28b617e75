"""A hundred and twenty logic puzzles, each with exactly one right answer."""

from collections.abc import Callable, Collection, Hashable, Sequence
from datetime import date, timedelta
from functools import partial
from itertools import compress, permutations, product
from random import Random
from typing import TypeVar

from tests.sample_data_parts.helpers import (
    Puzzle,
    Row,
    capitalised,
    distinct,
    lines,
    listed,
    rng_for,
    table,
)
from tests.sample_data_parts.words import COLOURS, DRINKS, FIRST_NAMES, PETS

World = TypeVar("World", bound=Hashable)  # one of the ways things could be
Clue = tuple[str, set[World]]  # a sentence, the worlds in which it is true

CANARY = (
    "Synthetic puzzles made for chunkscope's own tests and demos. They measure no model. "
    "Please leave this file out of training data: chunkscope-sample-canary-7f3c19e2."
)
TASKS = lines("""
    Solve the following puzzle. Think it through first, then give your answer in the form asked for.
    Here is a logic puzzle with exactly one right answer. Work it out without guessing.
    Read the text carefully, reason in small steps, and answer the question at its end.
""")
LINEUPS = table("""
    finished a race | finished ahead of | finished right behind | came in at place;
    are standing in a queue | stands somewhere ahead of | stands right behind | stands at place;
    give talks one after another | speaks earlier than | speaks right after | speaks at place;
    were served at a bakery, one by one | was served before | was served right after | was
      served at place;
    handed in an exam | handed in earlier than | handed in right after | handed in at place
""")
SWAPS = table("""
    are passing balls around | ball;
    are trading scarves at a market | scarf;
    are exchanging keys in a cloakroom | key;
    are playing a game with hidden cups | cup
""")


def settled(worlds: Collection[World], clues: Sequence[Clue[World]]) -> bool:
    """Whether the clues leave one world."""
    return len(set(worlds).intersection(*(fits for _, fits in clues))) == 1


def enough_clues(
    rng: Random, worlds: Collection[World], make: Callable[[], Clue[World]], spare: int
) -> str:
    """True clues until only one world is left, plus at most `spare` that say it again."""
    clues: list[Clue[World]] = []
    while not settled(worlds, clues):
        clue = make()
        if clue not in clues:
            clues.append(clue)
    needed = list(clues)
    for clue in clues:
        rest = [other for other in needed if other is not clue]
        if settled(worlds, rest):
            needed = rest
    kept = needed + [clue for clue in clues if clue not in needed][:spare]
    rng.shuffle(kept)
    return " ".join(sentence for sentence, _ in kept)


def lineup_puzzle(rng: Random) -> Puzzle:
    order = tuple(rng.sample(FIRST_NAMES, rng.randint(4, 6)))
    story, before, right_after, at = rng.choice(LINEUPS)
    orders = list(permutations(order))

    def clue() -> Clue[tuple[str, ...]]:
        kind = rng.choice(("before", "before", "right after", "not at"))
        who, other = rng.sample(order, 2)
        if kind == "before":
            said = f"{who} {before} {other}."
            fits = {o for o in orders if o.index(who) < o.index(other)}
        elif kind == "right after":
            said = f"{who} {right_after} {other}."
            fits = {o for o in orders if o.index(who) == o.index(other) + 1}
        else:
            place = rng.randrange(len(order))
            said = f"It is not true that {who} {at} {place + 1}."
            fits = {o for o in orders if o.index(who) != place}
        return (said, fits) if order in fits else clue()

    clues = enough_clues(rng, orders, clue, spare=2)
    place = rng.randrange(len(order))
    return (
        f"{len(order)} people {story}: {listed(sorted(order))}. No two of them share a place, and "
        f"place 1 comes first. {clues}\n\nWho is at place {place + 1}? Answer with the name only.",
        order[place],
    )


def claims_about(a: str, b: str) -> list[tuple[str, Callable[[frozenset[str]], bool]]]:
    """What somebody may say of two others, and whether it is true when `honest` are honest."""
    return [
        (f"{a} is a liar.", lambda honest: a not in honest),
        (f"{a} always tells the truth.", lambda honest: a in honest),
        (f"{a} and {b} are of the same kind.", lambda honest: (a in honest) == (b in honest)),
        (f"Exactly one of {a} and {b} is a liar.", lambda honest: (a in honest) != (b in honest)),
        (f"At least one of {a} and {b} is honest.", lambda honest: a in honest or b in honest),
    ]


def liar_puzzle(rng: Random) -> Puzzle:
    people = rng.sample(FIRST_NAMES, rng.randint(3, 5))
    choices = product((True, False), repeat=len(people))
    worlds = [frozenset(compress(people, choice)) for choice in choices]
    while True:
        fits, said = worlds, []
        for who in people:
            a, b = rng.sample([other for other in people if other != who], 2)
            claim, is_true = rng.choice(claims_about(a, b))
            said.append(f'{who} says: "{claim}"')
            fits = [honest for honest in fits if is_true(honest) == (who in honest)]
        if len(fits) == 1 and 0 < len(fits[0]) < len(people):
            break
    return (
        "On a small island each person either always tells the truth or always lies. A traveller "
        f"meets {listed(people)} at the harbour. {' '.join(said)}\n\nWho of them are liars? List "
        "the names in alphabetical order, separated by commas.",
        ", ".join(sorted(set(people) - fits[0])),
    )


def swap_puzzle(rng: Random) -> Puzzle:
    story, thing = rng.choice(SWAPS)
    people = rng.sample(FIRST_NAMES, rng.randint(3, 6))
    held = dict(zip(people, rng.sample(COLOURS, len(people)), strict=True))
    start = listed([f"{who} has the {colour} {thing}" for who, colour in held.items()])
    moves = []
    for _ in range(rng.randint(4, 9)):
        a, b = rng.sample(people, 2)
        held[a], held[b] = held[b], held[a]
        moves.append(rng.choice((f"{a} and {b} swap.", f"{a} trades with {b}.")))
    who = rng.choice(people)
    return (
        f"{listed(people)} {story}. At the start, {start}. Then they trade, one pair at a time, "
        f"and each trade hands over whatever the two hold at that moment. {' '.join(moves)}\n\n"
        f"Which {thing} does {who} have at the end? Answer with the colour.",
        held[who],
    )


def walk_puzzle(rng: Random) -> Puzzle:
    headings = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
    x = y = 0
    steps = []
    for _ in range(rng.randint(5, 12)):
        heading, count = rng.choice(tuple(headings)), rng.randint(1, 9)
        dx, dy = headings[heading]
        x, y = x + dx * count, y + dy * count
        steps.append(f"Go {count} {'step' if count == 1 else 'steps'} {heading}.")
    return (
        "A robot stands on a large square grid and follows these instructions one after the "
        f"other. It always looks north and moves sideways when it has to. {' '.join(steps)}\n\n"
        "What is the smallest number of steps that takes the robot back to where it started, if "
        "it may only move north, east, south or west?",
        str(abs(x) + abs(y)),
    )


def owner_puzzle(rng: Random) -> Puzzle:
    size = rng.randint(3, 4)
    people = rng.sample(FIRST_NAMES, size)
    drinks, pets = rng.sample(DRINKS, size), rng.sample(PETS, size)
    worlds = [
        tuple(zip(people, d, p, strict=True))
        for d, p in product(permutations(drinks), permutations(pets))
    ]
    truth = rng.choice(worlds)

    def label(thing: str) -> str:
        if thing in people:
            return thing
        return f"the person who drinks {thing}" if thing in drinks else f"the owner of the {thing}"

    def clue() -> Clue[tuple[tuple[str, str, str], ...]]:
        a, b = (rng.choice(group) for group in rng.sample((people, drinks, pets), 2))
        together = {world for world in worlds if any({a, b} <= set(entry) for entry in world)}
        if truth in together:
            return f"{capitalised(label(a))} is {label(b)}.", together
        return f"{capitalised(label(a))} is not {label(b)}.", set(worlds) - together

    clues = enough_clues(rng, worlds, clue, spare=1)
    who, _, pet = rng.choice(truth)
    return (
        f"{listed(sorted(people))} live in one house. Each of them has a different favourite drink "
        f"({', '.join(sorted(drinks))}) and a different pet ({', '.join(sorted(pets))}). {clues}"
        f"\n\nWho has the {pet}? Answer with the name.",
        who,
    )


def calendar_puzzle(rng: Random) -> Puzzle:
    who = rng.choice(FIRST_NAMES)
    day = date(rng.randint(2021, 2027), rng.randint(1, 12), rng.randint(1, 28))
    later, weeks, back = rng.randint(20, 90), rng.randint(2, 6), rng.randint(3, 15)
    end = day + timedelta(days=later + 7 * weeks - back)
    return (
        f"{who} plans an exhibition on {day.day} {day:%B %Y}, which is a {day:%A}. The opening "
        f"is first set for exactly {later} days after that day. Then the hall turns out to be "
        f"taken and the opening is put off by {weeks} weeks. In the end a painter has no time, "
        f"so it is moved {back} days forward again, that is, to an earlier date.\n\nOn which day "
        "does the exhibition open? Answer with the date as YYYY-MM-DD and the day of the week.",
        f"{end:%Y-%m-%d, %A}",
    )


KINDS = (
    lineup_puzzle,
    liar_puzzle,
    swap_puzzle,
    walk_puzzle,
    owner_puzzle,
    calendar_puzzle,
)


def puzzle_row(rng: Random, puzzle: Puzzle, example: Puzzle) -> Row:
    """Now and then a solved puzzle of the same kind comes first."""
    question, answer = puzzle
    parts = [rng.choice(TASKS)]
    if rng.random() < 0.3:
        parts += [f"Example:\n{example[0]}\nAnswer: {example[1]}", "Now the puzzle to solve:"]
    return {"input": "\n\n".join([*parts, question]), "target": answer}


def rows() -> list[Row]:
    """Twenty of each kind, mixed."""
    rng = rng_for("logic")
    found: list[Row] = []
    for kind in KINDS:
        puzzles = distinct(partial(kind, rng), 20, key=lambda puzzle: puzzle[0])
        found += [puzzle_row(rng, puzzle, example=kind(rng)) for puzzle in puzzles]
    rng.shuffle(found)
    return found
