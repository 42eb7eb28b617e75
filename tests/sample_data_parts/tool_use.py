"""Forty conversations with functions to call: one request, a follow-up, or nothing to call."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from tests.sample_data_parts.helpers import Row, distinct, lines, phrases, rng_for, words
from tests.sample_data_parts.words import CITIES, WEEKDAYS

SYSTEMS = lines("""
    You are a helpful assistant. Call a function when it helps; otherwise answer directly.
    You work at a service desk. Use the functions you are given and never invent their results.
    Answer with exactly one function call when the request needs one.
""")
SMALL_TALK = lines("""
    No need to look anything up: what is a polite way to begin a letter to someone I have never met?
    Before we start, can you explain in one sentence what a time zone is?
    Just a general question, without any function: which is longer, a fortnight or ten days?
    Please do not call anything yet. Which details would you need from me to help with a complaint?
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCase:
    """A function, what a user may ask of it, and what it might answer."""

    name: str
    description: str
    slots: Mapping[str, tuple[str, Sequence[str | int]]]  # argument: what it is, possible values
    ask: str
    result: Mapping[str, str]
    reply: str
    follow_up: str
    changed: str  # the argument that the follow-up gives anew


CASES = (
    ToolCase(
        name="get_forecast",
        description="Weather forecast for one place and day.",
        slots={
            "city": ("Name of the place", CITIES),
            "day": ("Day of the week", WEEKDAYS),
            "unit": ("Temperature scale", words("celsius fahrenheit")),
        },
        ask="What will the weather be like in {city} on {day}? I think in degrees {unit}.",
        result={"sky": "light rain", "wind": "12 km/h", "place": "{city}"},
        reply="For {city} on {day} the forecast says light rain with a wind of 12 km/h.",
        follow_up="Thanks. And what about {city} on the same day?",
        changed="city",
    ),
    ToolCase(
        name="book_room",
        description="Reserve a meeting room for one hour.",
        slots={
            "room": ("Room name", words("Birch Maple Willow Rowan")),
            "day": ("Working day", WEEKDAYS[:5]),
            "start": ("Start time, 24-hour clock", words("09:00 10:30 13:00 15:15")),
        },
        ask="Please reserve the room {room} for us on {day}, starting at {start}.",
        result={"status": "reserved", "room": "{room}", "minutes": "60"},
        reply="Done: {room} is yours on {day} from {start}, for one hour.",
        follow_up="We need the same room and time on {day} as well, can you add that?",
        changed="day",
    ),
    ToolCase(
        name="track_parcel",
        description="Where a parcel is and when it should arrive.",
        slots={
            "number": (
                "Parcel number, two letters and five digits",
                words("KX48213 LM90077 QT55120 RB31968 VN70442"),
            ),
            "language": ("Language of the answer", words("English Polish Italian")),
        },
        ask="My parcel {number} has not come yet. Where is it? Please look it up in {language}.",
        result={"parcel": "{number}", "state": "in the sorting centre", "due": "tomorrow"},
        reply="Parcel {number} is in the sorting centre and should arrive tomorrow.",
        follow_up="My neighbour is waiting for {number}. Can you look that one up too?",
        changed="number",
    ),
    ToolCase(
        name="search_library",
        description="Search the catalogue of the town library.",
        slots={
            "subject": (
                "What it is about",
                phrases("beekeeping; medieval bridges; watercolours; tide pools; night trains"),
            ),
            "medium": ("Kind of item", words("book film magazine")),
            "branch": ("Library branch", words("Central Harbour Hillside")),
        },
        ask="Does the {branch} branch have a {medium} about {subject}?",
        result={"branch": "{branch}", "hits": "3", "on_shelf": "2"},
        reply="The {branch} branch lists three items on {subject}; two are on the shelf.",
        follow_up="Nice. Could you check the {branch} branch for me too?",
        changed="branch",
    ),
    ToolCase(
        name="plan_route",
        description="Find a connection between two towns.",
        slots={
            "origin": ("Where the trip starts", CITIES[:6]),
            "destination": ("Where the trip ends", CITIES[6:]),
            "means": ("How to travel", words("train bus")),
            "departure": ("Earliest departure, 24-hour clock", words("07:40 11:05 16:20")),
        },
        ask="How do I get from {origin} to {destination} by {means}? I can leave at {departure}.",
        result={"from": "{origin}", "to": "{destination}", "changes": "1"},
        reply="There is a connection from {origin} to {destination} with one change.",
        follow_up="What if I left at {departure} instead?",
        changed="departure",
    ),
    ToolCase(
        name="set_thermostat",
        description="Set the heating of one room.",
        slots={
            "room": ("Room of the flat", words("kitchen bedroom study hall")),
            "degrees": ("Wanted temperature in degrees Celsius", (17, 18, 20, 21)),
            "until": ("When to go back to normal, 24-hour clock", words("08:00 18:30 22:00")),
        },
        ask="Keep the {room} at {degrees} degrees until {until}, please.",
        result={"room": "{room}", "accepted": "yes"},
        reply="The {room} will stay at {degrees} degrees until {until}.",
        follow_up="Do the same for the {room}, please.",
        changed="room",
    ),
)


def function_schema(case: ToolCase) -> Row:
    """The function as OpenAI's API describes one."""
    properties: Row = {}
    for slot, (about, values) in case.slots.items():
        if isinstance(values[0], int):
            properties[slot] = {"type": "integer", "description": about}
        else:
            properties[slot] = {"type": "string", "description": about}
            if len(values) <= 4:
                properties[slot]["enum"] = list(values)
    parameters = {"type": "object", "properties": properties, "required": list(case.slots)}
    function = {"name": case.name, "description": case.description, "parameters": parameters}
    return {"type": "function", "function": function}


def call_id(rng: Random) -> str:
    """Mistral takes exactly nine letters or digits."""
    return "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789", k=9))


def first_exchange(rng: Random, case: ToolCase, values: Row) -> list[Row]:
    """A question, the call it leads to, the result, and the assistant's reply."""
    identifier = call_id(rng)
    call = {"name": case.name, "arguments": json.dumps(values)}
    result = {key: text.format(**values) for key, text in case.result.items()}
    return [
        {"role": "user", "content": case.ask.format(**values)},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": identifier, "type": "function", "function": call}],
        },
        {
            "role": "tool",
            "tool_call_id": identifier,
            "name": case.name,
            "content": json.dumps(result, ensure_ascii=False),
        },
        {"role": "assistant", "content": case.reply.format(**values)},
    ]


def tool_messages(rng: Random, case: ToolCase, kind: str) -> tuple[list[Row], Row | None]:
    """A conversation that ends with the user, and the call that should come next."""
    values: Row = {slot: rng.choice(options) for slot, (_, options) in case.slots.items()}
    if kind == "no call":
        return [{"role": "user", "content": rng.choice(SMALL_TALK)}], None
    earlier, request = [], case.ask
    if kind == "follow-up":
        earlier, request = first_exchange(rng, case, values), case.follow_up
        _, options = case.slots[case.changed]
        values[case.changed] = rng.choice([o for o in options if o != values[case.changed]])
    messages = [*earlier, {"role": "user", "content": request.format(**values)}]
    return messages, {"name": case.name, "arguments": values}


def tool_row(rng: Random, kind: str) -> Row:
    offered = rng.sample(CASES, rng.randint(2, 5))
    messages, expected = tool_messages(rng, offered[0], kind)
    rng.shuffle(offered)
    return {
        "messages": [{"role": "system", "content": rng.choice(SYSTEMS)}, *messages],
        "tools": [function_schema(case) for case in offered],
        "expected_call": expected,
    }


def rows() -> list[Row]:
    rng = rng_for("tools")
    found: list[Row] = []
    for kind, count in (("single", 16), ("follow-up", 20), ("no call", 4)):
        make = partial(tool_row, rng, kind)
        found += distinct(make, count, key=lambda row: str(row["messages"][1]))
    rng.shuffle(found)
    return found
