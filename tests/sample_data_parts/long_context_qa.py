"""Forty packs of documents with a question each, from about 3K to about 23K tokens."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import cycle, product
from random import Random

from tests.sample_data_parts.helpers import Puzzle, Row, capitalised, lines, listed, rng_for, table
from tests.sample_data_parts.words import (
    CITIES,
    CREWS,
    FIRST_NAMES,
    LAST_NAMES,
    PROJECT_ADJECTIVES,
    PROJECT_NOUNS,
    ROOMS,
    THINGS,
    TROUBLES,
    VENDORS,
    WEEKDAYS,
)

Project = dict[str, str]  # its name, and the answer to each of FACT_QUESTIONS

DOCUMENT_KINDS = table("""
    Minutes of the review meeting on {name} | The group met in {room} on {weekday} morning and
      went through the open points of {name}.;
    Incident report concerning {name} | The duty officer opened this report on {weekday} after
      {crew} had noticed {trouble}.;
    Notes from a site visit to {name} | We arrived on {weekday} in poor weather and were shown
      round by {crew}.;
    Letter to the partners of {name} | Dear partners, as promised on {weekday} we send you an
      account of where {name} stands.;
    Quarterly summary of {name} | This summary covers the last quarter of {name} and was closed
      on {weekday} at noon.;
    Interview with the people behind {name} | The conversation took place in {room}, late on
      {weekday}, over rather strong coffee.
""")
FACT_SENTENCES = {
    "lead": lines("""
        {name} is led by {lead}, who reports to the steering group once a month.
        Responsibility for {name} lies with {lead}, as agreed in the spring.
        {lead} remains in charge of {name} and signs its orders.
    """),
    "city": lines("""
        {name} is run from the office in {city}.
        The home of {name} is the building in {city} that was rented two years ago.
        All staff of {name} have their desks in {city}.
    """),
    "budget": lines("""
        The approved budget of {name} is {budget} euros for the current year.
        For this year {name} may spend {budget} euros, not counting salaries.
        The board set the yearly budget of {name} at {budget} euros.
    """),
    "opening": lines("""
        The public opening of {name} is planned for {opening}.
        If nothing else goes wrong, {name} opens to the public on {opening}.
        The opening date of {name} was fixed: {opening}.
    """),
    "part": lines("""
        The replacement pump of {name} is listed in the store under part number {part}.
        Whoever repairs {name} should order the pump with part number {part}.
        In the spare-parts list of {name} the pump carries part number {part}.
    """),
    "vendor": lines("""
        The cables of {name} are supplied by {vendor} under a contract of three years.
        After a short tender {vendor} was chosen as the supplier of cables for {name}.
        {name} buys its cables from {vendor}, which has so far delivered on time.
    """),
}
FACT_QUESTIONS = {
    "lead": "Who is in charge of {name}?",
    "city": "In which city is {name} based?",
    "budget": "What is this year's budget of {name}, in euros?",
    "opening": "On which date does {name} open to the public?",
    "part": "What is the part number of the pump of {name}?",
    "vendor": "Which company supplies the cables of {name}?",
}
FILLER = lines("""
    {crew} asked for {n} more minutes between two rounds, and nobody objected.
    The {thing} was moved to {room} because of {trouble}.
    On {weekday} the {thing} was checked twice, first by {crew} and then by {crew2}.
    Visitors liked the {thing} but found the way to {room} hard to follow.
    A list of {n} open questions was pinned to the door of {room}.
    {crew} would rather repair the {thing} than replace it, as a new one takes {n} weeks.
    We heard of {trouble} from {crew2}, although it never made it into the weekly notes.
    The meeting about the {thing} was put off to {weekday} and then lasted {n} minutes.
    There was some discussion of whether the {thing} belongs in {room} at all.
    Of {n} trial runs all but two went well; those were stopped because of {trouble}.
    Every change to the {thing} is now written down by {crew} on the same day.
    Nobody could say since when the {thing} had been standing in {room}.
    The noise near {room} was measured on {weekday} and stayed below the agreed level.
    A second key for {room} will be handed to {crew2} next week.
    {n} photographs of the {thing} are kept in the shared folder.
    Training for {crew} starts on {weekday} and takes {n} hours in all.
    The old {thing} was given away; the new one works but is heavier.
    Because of {trouble}, {crew2} had to stay {n} minutes longer than planned.
    It was agreed to look at the {thing} again when the days are drier.
    {crew} praised the short reports and asked that they stay short.
    The floor of {room} has been marked with tape so that the {thing} always returns to its place.
    Two of the {n} complaints this month were about the {thing}, the others about parking.
    On {weekday} the lights in {room} failed for {n} minutes, without any harm done.
    {crew2} suggested a simpler form for reporting faults of the {thing}.
    The cleaning plan for {room} was extended by {n} minutes a week.
    An outside expert looked at the {thing} and advised patience.
    Since {weekday} a sheet of paper next to the {thing} shows who used it last.
    No decision was taken on {room}, which stays closed until further notice.
    The spring storm left {n} roof tiles on the path to {room}.
    {crew} counted {n} boxes in {room}, one fewer than the list says.
    What was said about {trouble} last time still holds, and {crew2} will keep an eye on it.
    The handbook page on the {thing} is out of date and will be rewritten by {weekday}.
    For the first time {crew} and {crew2} worked on the {thing} together, which went well.
    A cheaper model of the {thing} was tried out in {room} for {n} days and sent back.
    Everyone agreed that {trouble} must not hold up the work on the {thing} again.
    It took {n} telephone calls to find the person who had borrowed the {thing}.
""")


def projects(rng: Random) -> Iterator[Project]:
    """Different projects until the names run out: no two share a name, lead, budget or part."""
    names = [
        f"{adjective} {noun}" for adjective, noun in product(PROJECT_ADJECTIVES, PROJECT_NOUNS)
    ]
    leads = [f"{first} {last}" for first, last in product(FIRST_NAMES, LAST_NAMES)]
    budgets_eur = rng.sample(range(40_000, 900_000, 500), len(names))
    parts = rng.sample(range(1000, 10_000), len(names))
    rng.shuffle(names)
    rng.shuffle(leads)
    for name, lead, budget_eur, part in zip(names, leads, budgets_eur, parts, strict=False):
        opening = date(2025, 1, 1) + timedelta(days=rng.randrange(700))
        yield {
            "name": f"Project {name}",
            "lead": lead,
            "city": rng.choice(CITIES),
            "budget": f"{budget_eur:,}",
            "opening": f"{opening.day} {opening:%B %Y}",
            "part": f"{rng.choice('BDFHKMRT')}{rng.choice('AELPQXZ')}-{part}",
            "vendor": rng.choice(VENDORS),
        }


def filled(rng: Random, template: str) -> str:
    crew, crew2 = rng.sample(CREWS, 2)
    return capitalised(
        template.format(
            crew=crew,
            crew2=crew2,
            thing=rng.choice(THINGS),
            room=rng.choice(ROOMS),
            trouble=rng.choice(TROUBLES),
            weekday=rng.choice(WEEKDAYS),
            n=rng.randint(3, 59),
        )
    )


def document(rng: Random, number: int, project: Project) -> str:
    """One report of a few paragraphs with the facts of its project spread over it."""
    title, opening = rng.choice(DOCUMENT_KINDS)
    body = [filled(rng, template) for template in rng.sample(FILLER, rng.randint(9, 16))]
    for sentences in FACT_SENTENCES.values():
        body.insert(rng.randint(0, len(body)), rng.choice(sentences).format(**project))
    body.insert(0, filled(rng, opening.replace("{name}", project["name"])))
    paragraphs = [" ".join(body[at : at + 6]) for at in range(0, len(body), 6)]
    return "\n\n".join([f"[Document {number}] {title.format(**project)}", *paragraphs])


def document_pack(rng: Random, target_words: int) -> tuple[str, list[Project]]:
    """Documents until the pack has the wanted number of words."""
    texts: list[str] = []
    pack: list[Project] = []
    size = 0
    for number, project in enumerate(projects(rng), start=1):
        texts.append(document(rng, number, project))
        pack.append(project)
        size += len(texts[-1].split())
        if size >= target_words:
            break
    return "\n\n\n".join(texts), pack


def lookup_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    project = rng.choice(pack)
    fact = rng.choice(tuple(FACT_QUESTIONS))
    return FACT_QUESTIONS[fact].format(name=project["name"]), project[fact]


def two_step_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    project = rng.choice(pack)
    clue = rng.choice(
        (
            f"the project that is led by {project['lead']}",
            f"the project whose pump has part number {project['part']}",
        )
    )
    fact = rng.choice(("city", "budget", "opening", "vendor"))
    return FACT_QUESTIONS[fact].format(name=clue), project[fact]


def comparison_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    chosen = rng.sample(pack, 3)
    names = listed([project["name"] for project in chosen])
    richest = max(chosen, key=lambda project: int(project["budget"].replace(",", "")))
    return f"Which has the largest budget this year: {names}? Give its name.", richest["name"]


def counting_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    city = rng.choice(pack)["city"]
    count = sum(project["city"] == city for project in pack)
    return f"How many of the projects in these documents are based in {city}?", str(count)


KINDS = (
    lookup_question,
    two_step_question,
    comparison_question,
    lookup_question,
    two_step_question,
    counting_question,
)


def rows() -> list[Row]:
    rng = rng_for("long")
    # From 2,300 to 18,400 words, by squares: more short packs than long ones.
    sizes = [2_300 + 16_100 * step**2 // 39**2 for step in range(40)]
    rng.shuffle(sizes)
    found = []
    for size, ask in zip(sizes, cycle(KINDS), strict=False):
        context, pack = document_pack(rng, size)
        question, answer = ask(rng, pack)
        prompt = (
            "Read the documents and answer the question that follows them. Use only what the "
            "documents say and answer in a few words."
            f"\n\n{context}\n\n\nQuestion: {question}\nAnswer:"
        )
        found.append({"context": context, "question": question, "answer": answer, "prompt": prompt})
    return found
