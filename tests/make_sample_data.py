"""Write sample_data/: small evaluation sets in several formats that show all three modes.

    python tests/make_sample_data.py            # writes into sample_data/
    python tests/make_sample_data.py FOLDER     # writes into FOLDER

Every sentence comes from the word banks below and every answer is computed, so the files are free
of other people's text. Each dataset has its own seed: changing one leaves the others as they are.
Rows are the same on every Python; a compressed file's bytes may differ with the zlib or pyarrow
that packed it, so compare rows (`datasets()`) rather than bytes.
"""

import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import cycle, permutations, product
from pathlib import Path
from random import Random
from string import Template
from typing import Any, TypeVar

SEED = 20240911
DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / "sample_data"

T = TypeVar("T")
Row = dict[str, Any]
Puzzle = tuple[str, str]  # what is asked, the right answer


def words(text: str) -> tuple[str, ...]:
    """Split a word bank: `words("ash birch")` is `("ash", "birch")`."""
    return tuple(text.split())


def lines(text: str) -> tuple[str, ...]:
    """Split a bank of sentences, one per line."""
    return tuple(" ".join(line.split()) for line in text.strip().splitlines())


def phrases(text: str) -> tuple[str, ...]:
    """Split a bank of phrases between semicolons: `phrases("a cup; a jug")`."""
    return tuple(" ".join(phrase.split()) for phrase in text.split(";"))


def table(text: str) -> tuple[tuple[str, ...], ...]:
    """Split a bank of records between semicolons, their fields between bars."""
    return tuple(tuple(field.strip() for field in row.split("|")) for row in phrases(text))


# ================================ word banks ================================

FIRST_NAMES = words(
    "Amina Bruno Carla Dmitri Elif Farid Greta Hugo Ines Jonas Keiko Liam Mara Nikhil Olga Pavel "
    "Quinn Rosa Stefan Tara Umar Vera Wanda Ximena Yusuf Zofia Anders Bettina Chidi Dalia Emeka "
    "Flora Goran Helena Ivo Jasmin Kofi Lucia Mateo Noor"
)
LAST_NAMES = words(
    "Abara Bellweather Castellan Dravik Eklund Fontaine Grimaldi Hoshino Ibarra Jankowski Kessler "
    "Lindqvist Marchetti Nakata Okafor Petrov Quillon Rasmussen Santoro Tveit Ueda Varga Weller "
    "Xanthos Yilmaz Zeman Aldana Brandt Coker Duarte"
)
CITIES = words("Porto Gdansk Lyon Tampere Bergen Bologna Ghent Cork Graz Leipzig Split Tartu")
WEEKDAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words(
    "January February March April May June July August September October November December"
)

MATH_SYSTEMS = lines("""
    Solve the problem step by step, then give the result on its own line as "Answer: <number>".
    You are a patient maths tutor. Show your working in short steps and end with the number alone.
    Work out the answer. Write each calculation on a new line and finish with the number.
    You are taking a primary-school maths test. Example question: Tom has 4 bags with 6 marbles \
    each and gives away 5 marbles; how many are left? Example solution: 4 * 6 = 24 marbles in all, \
    and 24 - 5 = 19 are left. Answer: 19. Now solve the next question in the same way, with one \
    calculation per sentence.
""")
MATH_ASIDES = lines("""
    It rained for most of that week.
    A neighbour's dog watched the whole thing from the gate.
    Last year nobody had kept a note of the numbers, so this time everything was written down.
    Two friends had promised to help but could not come.
    The radio in the corner played old songs the whole time.
    A poster on the wall said that the next fair would be in 45 days.
""")
GOODS = table("""
    notebook | notebooks; pencil case | pencil cases; jigsaw puzzle | jigsaw puzzles;
    paintbrush | paintbrushes; football sticker pack | football sticker packs;
    water bottle | water bottles; flower pot | flower pots; torch | torches
""")
CROPS = words("apples pears tomatoes pumpkins plums carrots onions lemons")

CAPITALS = table("""
    Argentina | Buenos Aires; Australia | Canberra; Austria | Vienna; Brazil | Brasília;
    Bulgaria | Sofia; Cameroon | Yaoundé; Canada | Ottawa; Colombia | Bogotá;
    Costa Rica | San José; Croatia | Zagreb; Cuba | Havana; Denmark | Copenhagen; Egypt | Cairo;
    Estonia | Tallinn; Ethiopia | Addis Ababa; Finland | Helsinki; Ghana | Accra; Greece | Athens;
    Hungary | Budapest; Iceland | Reykjavík; Ireland | Dublin; Jamaica | Kingston; Japan | Tokyo;
    Kenya | Nairobi; Latvia | Riga; Lithuania | Vilnius; the Maldives | Malé; Moldova | Chișinău;
    Mongolia | Ulaanbaatar; Morocco | Rabat; Nepal | Kathmandu; New Zealand | Wellington;
    Norway | Oslo; Paraguay | Asunción; Peru | Lima; Poland | Warsaw; Portugal | Lisbon;
    Romania | Bucharest; Senegal | Dakar; Slovakia | Bratislava; Slovenia | Ljubljana;
    Thailand | Bangkok; Tunisia | Tunis; Turkey | Ankara; Uruguay | Montevideo; Vietnam | Hanoi;
    Zambia | Lusaka; Zimbabwe | Harare
""")
ELEMENTS = words(  # in order of atomic number, so the place in the list is the number
    "Hydrogen:H Helium:He Lithium:Li Beryllium:Be Boron:B Carbon:C Nitrogen:N Oxygen:O Fluorine:F "
    "Neon:Ne Sodium:Na Magnesium:Mg Aluminium:Al Silicon:Si Phosphorus:P Sulfur:S Chlorine:Cl "
    "Argon:Ar Potassium:K Calcium:Ca Scandium:Sc Titanium:Ti Vanadium:V Chromium:Cr Manganese:Mn "
    "Iron:Fe Cobalt:Co Nickel:Ni Copper:Cu Zinc:Zn"
)
PLANETS = words("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune")  # from the Sun outwards
LANGUAGES = words("German French Spanish Italian Swedish")
VOCABULARY = table("""
    water | Wasser | eau | agua | acqua | vatten; bread | Brot | pain | pan | pane | bröd;
    milk | Milch | lait | leche | latte | mjölk; house | Haus | maison | casa | casa | hus;
    tree | Baum | arbre | árbol | albero | träd;
    school | Schule | école | escuela | scuola | skola;
    night | Nacht | nuit | noche | notte | natt;
    church | Kirche | église | iglesia | chiesa | kyrka;
    bird | Vogel | oiseau | pájaro | uccello | fågel; snow | Schnee | neige | nieve | neve | snö;
    key | Schlüssel | clé | llave | chiave | nyckel;
    spoon | Löffel | cuillère | cuchara | cucchiaio | sked; island | Insel | île | isla | isola | ö
""")
EVENTS = table("""
    the Battle of Hastings | 1066; the sealing of Magna Carta | 1215;
    the Ottoman capture of Constantinople | 1453; the first Atlantic crossing of Columbus | 1492;
    the Great Fire of London | 1666; the publication of Newton's Principia | 1687;
    the American Declaration of Independence | 1776; the storming of the Bastille | 1789;
    the Battle of Waterloo | 1815; the publication of On the Origin of Species | 1859;
    the opening of the Suez Canal | 1869; the opening of the Eiffel Tower | 1889;
    the first powered flight of the Wright brothers | 1903; the sinking of the Titanic | 1912;
    the opening of the Panama Canal | 1914; the October Revolution in Russia | 1917;
    the discovery of penicillin | 1928; the end of the Second World War | 1945;
    the launch of Sputnik 1 | 1957; the first crewed Moon landing | 1969;
    the fall of the Berlin Wall | 1989
""")
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

SNIPPET_DOMAINS = table("""
    order | orders | customer | total | shop/orders.py;
    shift | shifts | worker | hours | rota/shifts.py;
    parcel | parcels | depot | weight | freight/parcels.py;
    ticket | tickets | team | minutes | helpdesk/tickets.py;
    reading | readings | sensor | value | telemetry/readings.py;
    loan | loans | branch | amount | library/loans.py;
    trip | trips | driver | distance | fleet/trips.py;
    invoice | invoices | supplier | net | ledger/invoices.py;
    sample | samples | patient | volume | lab/samples.py;
    booking | bookings | guest | price | hotel/bookings.py
""")

# A snippet is a correct function, tests for it, and edits that break it: `@bug right => wrong`,
# then what a user notices. $item, $items, $owner and $amount are filled in from SNIPPET_DOMAINS.
SNIPPET_BANK = r'''
@snippet ${item}_totals
def ${item}_totals(${items}):
    """Sum the $amount of the $items per $owner, largest first, ties by name."""
    totals = {}
    for $item in $items:
        key = $item["$owner"]
        totals[key] = totals.get(key, 0) + $item["$amount"]
    return sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))
@tests
rows = [{"$owner": "b", "$amount": 4}, {"$owner": "a", "$amount": 2}, {"$owner": "a", "$amount": 5}]
assert ${item}_totals(rows) == [("a", 7), ("b", 4)]
assert ${item}_totals([]) == []
@bug totals.get(key, 0) + $item["$amount"] => $item["$amount"]
each $owner shows only the last of its $items instead of the sum
@bug (-pair[1], pair[0]) => (pair[1], pair[0])
the overview starts with the smallest $owner

@snippet merge_${item}_windows
def merge_${item}_windows(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the time windows of $items that overlap or touch.

    A window is a pair (start, end) in minutes since midnight, the end not included.
    """
    merged: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            previous_start, previous_end = merged[-1]
            merged[-1] = (previous_start, max(previous_end, end))
        else:
            merged.append((start, end))
    return merged
@tests
assert merge_${item}_windows([(60, 90), (0, 30), (30, 45)]) == [(0, 45), (60, 90)]
assert merge_${item}_windows([(0, 100), (10, 20), (50, 120)]) == [(0, 120)]
assert merge_${item}_windows([(0, 100), (10, 20)]) == [(0, 100)]
@bug max(previous_end, end) => end
a long window shrinks as soon as a short one lies inside it
@bug start <= merged[-1][1] => start < merged[-1][1]
windows that touch are listed as two
@bug in sorted(windows) => in windows
the result is wrong whenever the $items were not entered in order of time

@snippet paginate_$items
def paginate_$items(${items}, page, per_page=20):
    """Return one page of $items and the number of pages; pages count from 1."""
    if per_page < 1:
        raise ValueError("per_page must be at least 1")
    pages = max(1, -(-len($items) // per_page))
    if not 1 <= page <= pages:
        raise IndexError(f"no page {page}, there are {pages}")
    first = (page - 1) * per_page
    return $items[first : first + per_page], pages
@tests
assert paginate_$items(list(range(45)), 3) == ([40, 41, 42, 43, 44], 3)
assert paginate_$items(list(range(4)), 1, per_page=2) == ([0, 1], 2)
assert paginate_$items([], 1) == ([], 1)
@bug -(-len($items) // per_page) => len($items) // per_page
the last page cannot be opened unless it happens to be full
@bug (page - 1) * per_page => page * per_page
the first $items of the list never appear on any page

@snippet parse_${item}_duration
import re
def parse_${item}_duration(text: str) -> int:
    """Seconds in a duration such as "1h 30m" or "45s", as typed into the $item form."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    parts = re.findall(r"(\d+)\s*([dhms])", text.lower())
    if not parts:
        raise ValueError(f"not a duration: {text!r}")
    return sum(int(number) * units[unit] for number, unit in parts)
@tests
assert parse_${item}_duration("1h 30m") == 5400
assert parse_${item}_duration("2D") == 172800
assert parse_${item}_duration("90 s") == 90
@bug "h": 3600, "m": 60 => "h": 60, "m": 3600
"1h 30m" is stored as thirty hours
@bug (\d+) => (\d)
"30m" is stored as zero minutes because only the last digit counts
@bug text.lower() => text
capital letters ("2D") are refused although the form allows them

@snippet smooth_$items
def smooth_$items(values: list[float], window: int = 3) -> list[float]:
    """Moving average over the $amount of the last `window` $items.

    The first results average what is there so far, so both lists have the same length.
    """
    smoothed = []
    running = 0.0
    for index, value in enumerate(values):
        running += value
        if index >= window:
            running -= values[index - window]
        smoothed.append(running / min(index + 1, window))
    return smoothed
@tests
assert smooth_$items([3, 5, 7, 9], window=2) == [3.0, 4.0, 6.0, 8.0]
assert smooth_$items([6], window=3) == [6.0]
@bug index >= window => index > window
the curve drifts upwards, as if one value were never taken out again
@bug min(index + 1, window) => window
the first points of every curve are far too low

@snippet find_$item
def find_$item(numbers: list[int], wanted: int) -> int | None:
    """Place of a $item number in the sorted list, or None when it is not there."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < len(numbers) and numbers[low] == wanted:
        return low
    return None
@tests
assert find_$item([2, 4, 8, 16], 16) == 3
assert find_$item([2, 4, 8, 16], 2) == 0
assert find_$item([2, 4, 8, 16], 5) is None
assert find_$item([2, 4, 8, 16], 99) is None
@bug numbers[middle] < wanted => numbers[middle] <= wanted
$items that exist are reported as missing
@bug low < len(numbers) and numbers[low] == wanted => numbers[low] == wanted
the search crashes when the number is larger than all known ones

@snippet Recent${Item}Cache
from collections import OrderedDict
class Recent${Item}Cache:
    """Holds the $items used last; the one unused for longest goes first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[str, object] = OrderedDict()

    def get(self, key: str) -> object | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: str, value: object) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self.size:
            self._entries.popitem(last=False)
@tests
cache = Recent${Item}Cache(2)
cache.put("a", 1), cache.put("b", 2)
assert cache.get("a") == 1
cache.put("c", 3)
assert cache.get("b") is None and cache.get("a") == 1 and cache.get("c") == 3
@bug popitem(last=False) => popitem()
what was just stored is gone as soon as the cache is full
@bug len(self._entries) > self.size => len(self._entries) >= self.size
the cache holds one entry less than it was told to

@snippet flatten_${item}_settings
def flatten_${item}_settings(settings, prefix=""):
    """Turn nested $item settings into dotted names: {"a": {"b": 1}} becomes {"a.b": 1}."""
    flat = {}
    for name, value in settings.items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            flat.update(flatten_${item}_settings(value, path))
        else:
            flat[path] = value
    return flat
@tests
nested = {"mail": {"to": {"$owner": True}, "retries": 2}, "debug": False}
expected = {"mail.to.$owner": True, "mail.retries": 2, "debug": False}
assert flatten_${item}_settings(nested) == expected
@bug _settings(value, path) => _settings(value, name)
names more than two levels deep lose their beginning
@bug f"{prefix}.{name}" if prefix else name => f"{prefix}.{name}"
every name starts with a dot

@snippet read_${item}_header
def read_${item}_header(text: str) -> dict[str, str]:
    """Read the `name: value` lines on top of a $item file, up to the first blank line.

    Lines that start with # are comments. A value may itself contain colons.
    """
    header = {}
    for line in text.splitlines():
        if not line.strip():
            break
        if line.startswith("#"):
            continue
        name, _, value = line.partition(":")
        header[name.strip().lower()] = value.strip()
    return header
@tests
text = "# export\nOwner: $owner 7\nTime: 12:30\n\nBody: not a header"
assert read_${item}_header(text) == {"owner": "$owner 7", "time": "12:30"}
@bug line.partition(":") => line.rpartition(":")
times such as 12:30 end up half in the name and half in the value
@bug break => continue
lines of the body turn up among the header fields
@bug name.strip().lower() => name.strip()
the field "owner" is missing when the file spells it "Owner"

@snippet order_${item}_steps
def order_${item}_steps(needs: dict[str, set[str]]) -> list[str]:
    """Order the steps of a $item so that each comes after the ones it needs.

    Among steps that are ready, names decide, so that the order is the same on every run.
    """
    waiting = {step: set(before) for step, before in needs.items()}
    ordered: list[str] = []
    while waiting:
        ready = sorted(step for step, before in waiting.items() if not before)
        if not ready:
            raise ValueError(f"steps wait for each other: {sorted(waiting)}")
        for step in ready:
            del waiting[step]
        for before in waiting.values():
            before.difference_update(ready)
        ordered.extend(ready)
    return ordered
@tests
needs = {"ship": {"pack"}, "pack": {"check", "pick"}, "pick": set(), "check": set()}
assert order_${item}_steps(needs) == ["check", "pick", "pack", "ship"]
assert needs["ship"] == {"pack"}, "the caller's sets must stay as they are"
@bug {step: set(before) for step, before in needs.items()} => dict(needs)
planning the same $item twice gives a different order the second time
@bug sorted(step for step, before => list(step for step, before
the order changes with the order in which the steps were entered

@snippet batch_$items
def batch_$items(${items}, limit):
    """Pack $items into batches whose $amount stays within the limit, in the given order.

    One $item above the limit gets a batch of its own.
    """
    batches, current, load = [], [], 0
    for $item in $items:
        if current and load + $item["$amount"] > limit:
            batches.append(current)
            current, load = [], 0
        current.append($item)
        load += $item["$amount"]
    if current:
        batches.append(current)
    return batches
@tests
a, b, c = {"$amount": 4}, {"$amount": 6}, {"$amount": 5}
assert batch_$items([a, b, c], 10) == [[a, b], [c]]
assert batch_$items([b, c, a], 5) == [[b], [c], [a]]
assert batch_$items([b, c, a], 10) == [[b], [c, a]]
assert batch_$items([], 10) == []
@bug if current: => if load > limit:
the last batch is never sent unless it is too large
@bug current, load = [], 0 => current = []
after the first full batch every $item gets a batch of its own
@bug > limit => >= limit
batches that would fit exactly are split

@snippet ${item}_running_balance
def ${item}_running_balance(changes, opening=0, floor=None):
    """Balance after each change to a $owner's account of $items.

    A change that would take the balance below the floor is refused and leaves it as it was.
    """
    balance = opening
    history = []
    for change in changes:
        if floor is None or balance + change >= floor:
            balance += change
        history.append(balance)
    return history
@tests
assert ${item}_running_balance([5, -3, -4]) == [5, 2, -2]
assert ${item}_running_balance([5, -3, -4, -2], floor=0) == [5, 2, 2, 0]
assert ${item}_running_balance([1], opening=10) == [11]
@bug floor is None or => floor and
no change at all is booked when there is no floor
@bug >= floor => > floor
an account cannot be emptied down to exactly the floor
@bug balance = opening => balance = 0
the opening balance is ignored

@snippet missing_${item}_numbers
def missing_${item}_numbers(numbers: list[int]) -> list[tuple[int, int]]:
    """Gaps in the $item numbers, as pairs (first missing, last missing)."""
    ranked = sorted(set(numbers))
    gaps = []
    for left, right in zip(ranked, ranked[1:]):
        if right - left > 1:
            gaps.append((left + 1, right - 1))
    return gaps
@tests
assert missing_${item}_numbers([1, 2, 5, 9, 9]) == [(3, 4), (6, 8)]
assert missing_${item}_numbers([3, 1]) == [(2, 2)]
assert missing_${item}_numbers([7, 8]) == []
@bug right - left > 1 => right - left > 2
a single missing $item goes unnoticed
@bug (left + 1, right - 1) => (left, right)
$items that exist are reported as missing at both ends of a gap

@snippet ${Item}RateLimiter
class ${Item}RateLimiter:
    """Allows each $owner a number of $items per window of seconds."""

    def __init__(self, limit: int, window_s: float) -> None:
        self.limit = limit
        self.window_s = window_s
        self._seen: dict[str, list[float]] = {}

    def allow(self, $owner: str, now: float) -> bool:
        recent = [at for at in self._seen.get($owner, []) if now - at < self.window_s]
        allowed = len(recent) < self.limit
        if allowed:
            recent.append(now)
        self._seen[$owner] = recent
        return allowed
@tests
limiter = ${Item}RateLimiter(limit=2, window_s=10)
assert [limiter.allow("x", at) for at in (0, 1, 2)] == [True, True, False]
assert limiter.allow("y", 2) and limiter.allow("x", 10)
assert not limiter.allow("x", 10.5)
@bug len(recent) < self.limit => len(recent) <= self.limit
one $item more than the limit gets through
@bug now - at < self.window_s => now - at > self.window_s
the limit never bites, however fast the $items come in
'''

PROJECT_ADJECTIVES = words(
    "Amber Brisk Copper Distant Early Faithful Granite Hollow Indigo Jagged Kindled Lunar Mellow "
    "Northern Opal Patient Quiet Russet Silver Tidal Upland Velvet Wandering Young Zealous Ashen"
)
PROJECT_NOUNS = words(
    "Anchor Beacon Cedar Dolphin Ember Falcon Garnet Heron Iris Juniper Kestrel Lantern Meadow "
    "Nettle Orchard Pelican Quarry Raven Sparrow Thistle Umbra Viaduct Willow Yarrow"
)
VENDORS = words("Halvorsen Brightwell Cormorin Duskfield Elmgate Ferrant Glasswing Hartmoor")
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
FACTS = {
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
CREWS = phrases("""
    the night shift; the workshop team; the two apprentices; the front desk; the electricians; the
    volunteers; the survey team; the gardeners; the archive group; the safety officers
""")
THINGS = phrases("""
    water gauge; ticket machine; loading ramp; weather mast; display case; spare generator; delivery
    lift; measuring table; signal lamp; heat exchanger; mobile stage; filing cabinet; air filter;
    camera rail
""")
ROOMS = phrases("""
    the lower hall; the pump room; room 12; the old canteen; the glass pavilion; the north
    stairwell; the small workshop; the reading room; the covered yard; the control room
""")
TROUBLES = phrases("""
    a leaking seal; a missing delivery note; damp in the east wall; a confused timetable; a blocked
    drain; two broken hinges; a lost key; a slow network connection; a flat battery; unusually heavy
    traffic
""")

PUZZLE_CANARY = (
    "Synthetic puzzles made for chunkscope's own tests and demos. They measure no model. "
    "Please leave this file out of training data: chunkscope-sample-canary-7f3c19e2."
)
PUZZLE_TASKS = lines("""
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
ORDINALS = words("first second third fourth fifth sixth")
TOKENS = words("green red blue yellow white black orange purple")
SWAPS = table("""
    are passing balls around | ball;
    are trading scarves at a market | scarf;
    are exchanging keys in a cloakroom | key;
    are playing a game with hidden cups | cup
""")
DRINKS = words("tea coffee cocoa lemonade")
PETS = words("cat parrot tortoise rabbit")

TOOL_SYSTEMS = lines("""
    You are a helpful assistant. Call a function when it helps; otherwise answer directly.
    You work at a service desk. Use the functions you are given and never invent their results.
    Answer with exactly one function call when the request needs one.
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCase:
    """A function, what a user may ask of it, and what it might answer."""

    name: str
    description: str
    slots: dict[str, tuple[str, tuple[str, ...]]]  # argument -> what it is, values it may take
    ask: str
    result: dict[str, str]
    reply: str
    follow_up: str
    changed: str  # the argument that the follow-up gives anew


TOOL_CASES = (
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
            "degrees": ("Wanted temperature in degrees Celsius", words("17 18 20 21")),
            "until": ("When to go back to normal, 24-hour clock", words("08:00 18:30 22:00")),
        },
        ask="Keep the {room} at {degrees} degrees until {until}, please.",
        result={"room": "{room}", "accepted": "yes"},
        reply="The {room} will stay at {degrees} degrees until {until}.",
        follow_up="Do the same for the {room}, please.",
        changed="room",
    ),
)
TOOL_SMALL_TALK = lines("""
    No need to look anything up: what is a polite way to begin a letter to someone I have never met?
    Before we start, can you explain in one sentence what a time zone is?
    Just a general question, without any function: which is longer, a fortnight or ten days?
    Please do not call anything yet. Which details would you need from me to help with a complaint?
""")
INTEGER_SLOTS = ("degrees",)


# ================================= helpers =================================


def rng_for(dataset: str) -> Random:
    return Random(f"{SEED}/{dataset}")


def distinct(make: Callable[[], T], count: int, key: Callable[[T], object]) -> list[T]:
    """Call `make` until `count` results with different keys are there."""
    found: dict[object, T] = {}
    while len(found) < count:
        candidate = make()
        found.setdefault(key(candidate), candidate)
    return list(found.values())


def dollars(cents: int) -> str:
    """`dollars(1250)` is "$12.50", `dollars(300)` is "$3"."""
    return f"${cents // 100}.{cents % 100:02}" if cents % 100 else f"${cents // 100}"


def clock(minutes: int) -> str:
    """`clock(545)` is "9:05"."""
    return f"{minutes // 60}:{minutes % 60:02}"


def listed(names: Sequence[str]) -> str:
    """`listed(["Ivo", "Noor", "Tara"])` is "Ivo, Noor and Tara"."""
    return f"{', '.join(names[:-1])} and {names[-1]}"


def capitalised(sentence: str) -> str:
    """Unlike str.capitalize, leave the other letters alone."""
    return sentence[:1].upper() + sentence[1:]


# ============================ math_word_problems ============================


def shopping_change(rng: Random) -> Puzzle:
    who = rng.choice(FIRST_NAMES)
    (first, firsts), (_, seconds) = rng.sample(GOODS, 2)
    a, b = rng.randint(2, 6), rng.randint(2, 5)
    price_a, price_b = rng.randrange(125, 700, 25), rng.randrange(150, 900, 50)
    spent = a * price_a + b * price_b
    paid = (spent // 2000 + 1) * 2000
    return (
        f"{who} buys {a} {firsts} and {b} {seconds} at the corner shop. One {first} costs "
        f"{dollars(price_a)} and the {seconds} cost {dollars(price_b)} each. {who} pays with "
        f"{dollars(paid)} in notes. How much change does {who} get back, in dollars?",
        dollars(paid - spent).removeprefix("$"),
    )


def bus_passengers(rng: Random) -> Puzzle:
    aboard = rng.randint(18, 40)
    text = f"A bus leaves the depot in {rng.choice(CITIES)} with {aboard} passengers."
    for stop in ORDINALS[: rng.randint(2, 4)]:
        off, on = rng.randint(2, min(9, aboard)), rng.randint(2, 12)
        text += f" At the {stop} stop {off} people get off and {on} get on."
        aboard += on - off
    return f"{text} How many passengers are on the bus after the last of these stops?", str(aboard)


def recipe_scaling(rng: Random) -> Puzzle:
    who = rng.choice(FIRST_NAMES)
    base, factor = rng.choice((4, 6, 8)), rng.randint(3, 7)
    flour, sugar = base * rng.randrange(20, 60, 5), base * rng.randrange(5, 20, 5)
    guests = base * factor // 2
    answer = (flour + sugar) * guests // base
    return (
        f"A pancake recipe for {base} people needs {flour} grams of flour and {sugar} grams of "
        f"sugar. {who} expects {guests} people for breakfast and scales the recipe so that "
        "everybody gets the same share. How many grams of flour and sugar together are needed?",
        str(answer),
    )


def saving_weeks(rng: Random) -> Puzzle:
    who = rng.choice(FIRST_NAMES)
    weekly, spent = rng.randint(12, 20), rng.randint(2, 6)
    have = rng.randint(10, 60)
    goal = have + rng.randint(90, 260)
    weeks = -(-(goal - have) // (weekly - spent))
    return (
        f"{who} wants to buy a bicycle for ${goal} and has saved ${have} so far. Every week {who} "
        f"earns ${weekly} by delivering newspapers and spends ${spent} of that on snacks. The "
        f"rest is saved. After how many full weeks will {who} have enough money for the bicycle?",
        str(weeks),
    )


def garden_fence(rng: Random) -> Puzzle:
    length, width, gate = rng.randint(12, 40), rng.randint(6, 25), rng.randint(2, 4)
    price = rng.randint(6, 15)
    return (
        f"A rectangular vegetable garden is {length} metres long and {width} metres wide. It gets "
        f"a fence all the way round except for a gate that is {gate} metres wide. One metre of "
        f"fence costs ${price}. How many dollars does the fence cost?",
        str((2 * (length + width) - gate) * price),
    )


def sale_price(rng: Random) -> Puzzle:
    thing, things = rng.choice(GOODS)
    price, off = rng.randrange(400, 4000, 100), rng.choice((10, 20, 25, 50))
    count, coupon = rng.randint(2, 8), rng.randrange(100, 300, 50)
    total = count * price * (100 - off) // 100
    return (
        f"During a sale every {thing} costs {off}% less than the usual {dollars(price)}. A school "
        f"orders {count} {things} at the sale price and hands in a coupon that takes another "
        f"{dollars(coupon)} off the whole bill. How many dollars does the school pay?",
        dollars(total - coupon).removeprefix("$"),
    )


def team_leftovers(rng: Random) -> Puzzle:
    size, classes, pupils = rng.randint(4, 9), rng.randint(3, 6), rng.randint(19, 28)
    away = rng.randint(2, 11)
    present = classes * pupils - away
    return (
        f"{classes} classes of {pupils} pupils each go on a sports day, but {away} pupils are ill "
        f"and stay at home. The others are put into teams of exactly {size}, as many teams as "
        "possible, and those who remain keep the score. How many pupils keep the score?",
        str(present % size),
    )


def farm_income(rng: Random) -> Puzzle:
    who, crop = rng.choice(FIRST_NAMES), rng.choice(CROPS)
    rows, per_row, spoiled = rng.randint(6, 15), rng.randint(12, 30), rng.randint(5, 40)
    box, price = rng.choice((5, 6, 8, 10)), rng.randint(3, 9)
    boxes = (rows * per_row - spoiled) // box
    return (
        f"{who} harvests {rows} rows of {crop} with {per_row} {crop} in each row. {spoiled} of "
        f"them are spoiled and go on the compost. The good ones are packed into boxes of {box}, "
        f"and only full boxes are sold, for ${price} a box. How many dollars does {who} earn?",
        str(boxes * price),
    )


def ticket_mix(rng: Random) -> Puzzle:
    adult, child = rng.randint(9, 15), rng.randint(4, 8)
    adults, children = rng.randint(10, 60), rng.randint(10, 60)
    return (
        f"A puppet theatre sells tickets for ${adult} to adults and for ${child} to children. One "
        f"evening {adults + children} tickets are sold for ${adult * adults + child * children} "
        "altogether. How many of the tickets were for children?",
        str(children),
    )


def water_tank(rng: Random) -> Puzzle:
    inflow, leak, minutes = rng.randint(12, 30), rng.randint(2, 8), rng.randint(15, 50)
    start, buckets, bucket = rng.randint(50, 200), rng.randint(2, 6), rng.randint(8, 12)
    final = start + (inflow - leak) * minutes - buckets * bucket
    return (
        f"A rain tank holds {start} litres. A pump adds {inflow} litres a minute while a crack "
        f"loses {leak} litres a minute. After {minutes} minutes the pump is switched off and the "
        f"crack is sealed. Then {buckets} buckets of {bucket} litres each are taken out for the "
        "flowers. How many litres are in the tank now?",
        str(final),
    )


def rehearsal_end(rng: Random) -> Puzzle:
    start, songs, length = rng.randrange(540, 900, 5), rng.randint(5, 9), rng.randint(6, 14)
    pause = rng.randint(2, 6)
    end = start + songs * length + (songs - 1) * pause
    return (
        f"A choir starts its rehearsal at {clock(start)}. It practises {songs} songs for {length} "
        f"minutes each, with a pause of {pause} minutes between one song and the next. At what "
        "time does the rehearsal end? Use the 24-hour clock.",
        clock(end),
    )


def comparison_chain(rng: Random) -> Puzzle:
    a, b, c = rng.sample(FIRST_NAMES, 3)
    shells, factor, fewer = rng.randint(10, 30), rng.randint(2, 4), rng.randint(3, 8)
    given = rng.randint(2, 6)
    return (
        f"{a} collects {shells} shells on the beach. {b} collects {factor} times as many as {a}, "
        f"and {c} collects {fewer} fewer than {a}. On the way home {b} gives {given} shells to "
        f"{c}. How many more shells than {c} does {b} have then?",
        str(shells * factor - given - (shells - fewer + given)),
    )


MATH_KINDS = (
    shopping_change,
    bus_passengers,
    recipe_scaling,
    saving_weeks,
    garden_fence,
    sale_price,
    team_leftovers,
    farm_income,
    ticket_mix,
    water_tank,
    rehearsal_end,
    comparison_chain,
)


def with_asides(rng: Random, question: str) -> str:
    """Put up to three sentences that do not matter in front, as such tests like to do."""
    return " ".join([*rng.sample(MATH_ASIDES, rng.choice((0, 0, 0, 1, 1, 2, 3))), question])


def math_word_problems(count: int = 200) -> list[Row]:
    rng = rng_for("math")
    problems = distinct(lambda: rng.choice(MATH_KINDS)(rng), count, key=lambda p: p[0])
    return [
        {
            "messages": [
                {"role": "system", "content": rng.choice(MATH_SYSTEMS)},
                {"role": "user", "content": with_asides(rng, question)},
            ],
            "answer": answer,
        }
        for question, answer in problems
    ]


# ============================== knowledge_quiz ==============================


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiz:
    question: str
    right: str
    wrong: tuple[str, ...]


def others(rng: Random, pool: Iterable[str], right: str) -> tuple[str, ...]:
    """Three wrong choices, all different from the right one and from each other."""
    return tuple(rng.sample([value for value in dict.fromkeys(pool) if value != right], 3))


def capital_quizzes(rng: Random) -> Iterator[Quiz]:
    capitals = [capital for _, capital in CAPITALS]
    for country, capital in CAPITALS:
        yield Quiz(
            question=f"What is the capital of {country}?",
            right=capital,
            wrong=others(rng, capitals, capital),
        )


def element_quizzes(rng: Random) -> Iterator[Quiz]:
    pairs = [entry.split(":") for entry in ELEMENTS]
    for number, (name, symbol) in enumerate(pairs, start=1):
        symbols = others(rng, [s for _, s in pairs], symbol)
        yield Quiz(
            question=f"What is the chemical symbol of {name.lower()}?", right=symbol, wrong=symbols
        )
        if number % 2 == 0:
            yield Quiz(
                question=f"Which element has the atomic number {number}?",
                right=name,
                wrong=others(rng, [n for n, _ in pairs], name),
            )


def vocabulary_quizzes(rng: Random) -> Iterator[Quiz]:
    for column, language in enumerate(LANGUAGES, start=1):
        known = [entry[column] for entry in VOCABULARY]
        for entry in VOCABULARY:
            yield Quiz(
                question=f'Which {language} word means "{entry[0]}"?',
                right=entry[column],
                wrong=others(rng, known, entry[column]),
            )


def year_quizzes(rng: Random) -> Iterator[Quiz]:
    for event, year in EVENTS:
        near = [str(int(year) + offset) for offset in (-23, -12, -7, 5, 9, 18)]
        yield Quiz(
            question=f"In which year was {event}?", right=year, wrong=others(rng, near, year)
        )


def ordering_quiz(rng: Random, question: str, ranked: Sequence[str]) -> Quiz:
    """Ask for the right order of four things out of a list that is in order."""
    chosen = [ranked[place] for place in sorted(rng.sample(range(len(ranked)), 4))]
    orders = [", ".join(order) for order in permutations(chosen)]
    return Quiz(question=question, right=orders[0], wrong=others(rng, orders, orders[0]))


def ordering_quizzes(rng: Random) -> Iterator[Quiz]:
    names = [entry.split(":")[0] for entry in ELEMENTS]
    for _ in range(9):
        yield ordering_quiz(rng, "Which list goes from the Sun outwards?", PLANETS)
    for _ in range(12):
        yield ordering_quiz(rng, "Which list is ordered by atomic number, smallest first?", names)
    for _ in range(14):
        yield ordering_quiz(
            rng,
            "Historians like a clear order of events, from the earliest to the latest.\n"
            "Which of these lists is in that order?",
            [event for event, _ in EVENTS],
        )


def loop_quiz(rng: Random) -> Quiz:
    start, stop, step = rng.randint(0, 4), rng.randint(9, 20), rng.randint(2, 4)
    total = sum(range(start, stop, step))
    return Quiz(
        question="What does this program print?\n\n"
        f"total = 0\nfor n in range({start}, {stop}, {step}):\n    total += n\nprint(total)",
        right=str(total),
        wrong=(str(total + stop), str(total - step), str(total + 1)),
    )


def slice_quiz(rng: Random) -> Quiz:
    values = rng.sample(range(10, 60), 6)
    a, b = rng.randint(0, 2), rng.randint(3, 5)
    cuts = [values[a:b], values[a : b + 1], values[a + 1 : b + 1], values[b:]]
    return Quiz(
        question=f"Given the list below, what is values[{a}:{b}]?\n\nvalues = {values}",
        right=str(cuts[0]),
        wrong=tuple(str(cut) for cut in cuts[1:]),
    )


def word_quiz(rng: Random) -> Quiz:
    word = rng.choice(PROJECT_NOUNS).lower()
    variants = [word[::-1].upper(), word.upper(), word[::-1], word[1:].upper()]
    return Quiz(
        question=f'What does this program print?\n\nword = "{word}"\nprint(word[::-1].upper())',
        right=variants[0],
        wrong=tuple(variants[1:]),
    )


def sequence_quiz(rng: Random) -> Quiz:
    start, factor, add = rng.randint(1, 6), rng.randint(2, 3), rng.randint(1, 5)
    terms = [start]
    while len(terms) < 6:
        terms.append(terms[-1] * factor + add)
    shown = ", ".join(str(term) for term in terms[:5])
    right = terms[5]
    return Quiz(
        question=f"Which number continues the sequence {shown}?",
        right=str(right),
        wrong=(str(right + 10), str(right - factor), str(right + 1)),
    )


def general_quizzes() -> Iterator[Quiz]:
    for question, right, *wrong in GENERAL:
        yield Quiz(question=question, right=right, wrong=tuple(wrong))


def computed_quizzes(rng: Random, count: int) -> Iterator[Quiz]:
    kinds = (loop_quiz, slice_quiz, word_quiz, sequence_quiz)
    yield from distinct(lambda: rng.choice(kinds)(rng), count, key=lambda quiz: quiz.question)


def quiz_row(rng: Random, quiz: Quiz) -> Row:
    choices = [quiz.right, *quiz.wrong]
    rng.shuffle(choices)
    fields = {f"choice_{letter}": choice for letter, choice in zip("abcd", choices, strict=True)}
    return {"question": quiz.question, **fields, "answer": "ABCD"[choices.index(quiz.right)]}


def knowledge_quiz(count: int = 300) -> list[Row]:
    rng = rng_for("quiz")
    quizzes = [
        *capital_quizzes(rng),
        *element_quizzes(rng),
        *vocabulary_quizzes(rng),
        *year_quizzes(rng),
        *ordering_quizzes(rng),
        *general_quizzes(),
    ]
    quizzes += computed_quizzes(rng, count - len(quizzes))
    rng.shuffle(quizzes)
    return [quiz_row(rng, quiz) for quiz in quizzes]


# ================================ code_repair ================================


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One edit that breaks a snippet, and what a user notices."""

    right: str
    wrong: str
    symptom: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A correct function or class, what it imports, tests for it, ways to break it."""

    name: str
    imports: tuple[str, ...]
    code: str
    tests: str
    bugs: tuple[Bug, ...]

    def broken(self, bug: Bug) -> str:
        if self.code.count(bug.right) != 1:
            raise ValueError(f"{self.name}: {bug.right!r} must occur exactly once")
        return self.code.replace(bug.right, bug.wrong)


def parse_bug(text: str) -> Bug:
    change, _, symptom = text.partition("\n")
    right, wrong = change.split(" => ")
    return Bug(right=right, wrong=wrong, symptom=symptom.strip())


def parse_snippet(text: str) -> Snippet:
    head, _, rest = text.partition("\n@tests\n")
    name, *source = head.split("\n")
    tests, *bugs = rest.split("\n@bug ")
    imports = tuple(line for line in source if line.startswith(("import ", "from ")))
    return Snippet(
        name=name,
        imports=imports,
        code="\n".join(line for line in source if line not in imports),
        tests=tests,
        bugs=tuple(parse_bug(bug) for bug in bugs),
    )


SNIPPETS = tuple(parse_snippet(text) for text in SNIPPET_BANK.split("\n@snippet ")[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The words of one business, to be put into a snippet."""

    item: str
    items: str
    owner: str
    amount: str
    path: str

    def fill(self, text: str) -> str:
        return Template(text).substitute(
            item=self.item,
            items=self.items,
            owner=self.owner,
            amount=self.amount,
            Item=self.item.capitalize(),
        )


DOMAINS = tuple(
    Domain(item=item, items=items, owner=owner, amount=amount, path=path)
    for item, items, owner, amount, path in SNIPPET_DOMAINS
)


def module_text(domain: Domain, snippets: Sequence[Snippet], codes: Sequence[str]) -> str:
    """One source file: its docstring, the imports it needs, its functions."""
    imports = sorted({line for snippet in snippets for line in snippet.imports})
    head = [f'"""Helpers for {domain.items}."""', *(["\n".join(imports)] if imports else [])]
    return "\n\n".join(head) + "\n\n\n" + "\n\n\n".join(domain.fill(code) for code in codes)


def fenced(path: str, code: str) -> str:
    return f"File `{path}`:\n```python\n{code}\n```"


def other_modules(rng: Random, domain: Domain, functions: int) -> list[str]:
    """Correct files of other domains, about `functions` functions in all."""
    blocks = []
    for other in rng.sample([d for d in DOMAINS if d != domain], len(DOMAINS) - 1):
        if functions <= 0:
            break
        chosen = rng.sample(SNIPPETS, min(functions, rng.randint(4, 8)))
        functions -= len(chosen)
        code = module_text(other, chosen, [snippet.code for snippet in chosen])
        blocks.append(fenced(other.path, code))
    return blocks


def name_in_log(domain: Domain, snippet: Snippet) -> str:
    """`Recent${Item}Cache` is tested by "tests/test_orders.py::test_recent_order_cache"."""
    suite = domain.path.rpartition("/")[2]
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", domain.fill(snippet.name)).lower()
    return f"tests/test_{suite}::test_{name}"


def run_log(rng: Random, domain: Domain, snippet: Snippet, passed: int) -> str:
    """The end of a test run in which one test fails."""
    fine = rng.sample([s for s in SNIPPETS if s != snippet], passed)
    log = [f"{name_in_log(domain, s)} PASSED" for s in fine]
    log.insert(rng.randint(0, passed), f"{name_in_log(domain, snippet)} FAILED")
    log.append(f"===== 1 failed, {passed} passed in 0.{rng.randint(10, 99)}s =====")
    return "\n".join(log)


def repair_prompt(
    rng: Random, domain: Domain, snippet: Snippet, bug: Bug, neighbours: int, functions: int
) -> str:
    """Ask for a repair: code with the bug among `neighbours`, other files, what goes wrong."""
    chosen = [snippet, *rng.sample([s for s in SNIPPETS if s != snippet], neighbours)]
    rng.shuffle(chosen)
    codes = [s.broken(bug) if s is snippet else s.code for s in chosen]
    name, symptom = domain.fill(snippet.name), domain.fill(bug.symptom)
    files = [
        fenced(domain.path, module_text(domain, chosen, codes)),
        *other_modules(rng, domain, functions),
    ]
    rng.shuffle(files)
    task = rng.choice(
        (
            f"A user reports: {symptom}. The cause is one mistake in `{name}`. Find it and reply "
            f"with the whole corrected `{name}`, nothing else.",
            f"`{name}` in `{domain.path}` does not do what its docstring says: {symptom}. Repair "
            "it with the smallest change you can and keep its name and its arguments.",
            f"The nightly tests fail. What people see is that {symptom}. Return a corrected "
            f"version of `{name}` and explain the mistake in one sentence.",
        )
    )
    evidence = rng.choice(
        (
            f"These checks must pass:\n```python\n{domain.fill(snippet.tests)}\n```",
            f"Test run:\n```\n{run_log(rng, domain, snippet, rng.randint(3, 9))}\n```",
        )
    )
    return "\n\n".join([task, *files, evidence])


def repair_sizes(rng: Random, count: int) -> list[tuple[int, int]]:
    """(neighbours, functions in other files) of each task: mostly small, a thin long tail."""
    medium = [(rng.randint(5, 8), rng.randint(0, 2)) for _ in range(9)]
    large = [(5, 8), (6, 11), (6, 16), (7, 22), (8, 33)]
    small = [(rng.choice((0, 0, 0, 1, 1, 2, 3, 4)), 0) for _ in range(count - len(medium + large))]
    sizes = small + medium + large
    rng.shuffle(sizes)
    return sizes


def code_repair(count: int = 150) -> list[Row]:
    rng = rng_for("code")
    cases = [(d, s, b) for d in DOMAINS for s in SNIPPETS for b in s.bugs]
    rows: list[Row] = []
    sizes = repair_sizes(rng, count)
    for number, ((domain, snippet, bug), (neighbours, functions)) in enumerate(
        zip(rng.sample(cases, count), sizes, strict=True), start=1
    ):
        rows.append(
            {
                "task_id": f"repair/{number:03}",
                "prompt": repair_prompt(rng, domain, snippet, bug, neighbours, functions),
                "tests": domain.fill(snippet.tests),
            }
        )
    return rows


# ============================== long_context_qa ==============================


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What one document of a pack is about; names, leads and parts are unique within a pack."""

    name: str
    lead: str
    city: str
    budget_eur: int
    opening: str
    part: str
    vendor: str

    def facts(self) -> dict[str, str]:
        return {
            "name": self.name,
            "lead": self.lead,
            "city": self.city,
            "budget": f"{self.budget_eur:,}",
            "opening": self.opening,
            "part": self.part,
            "vendor": self.vendor,
        }


def projects(rng: Random) -> Iterator[Project]:
    """Endless different projects, until the names run out."""
    names = [f"{a} {n}" for a, n in product(PROJECT_ADJECTIVES, PROJECT_NOUNS)]
    leads = [f"{f} {last}" for f, last in product(FIRST_NAMES, LAST_NAMES)]
    budgets = rng.sample(range(40_000, 900_000, 500), len(names))
    parts = rng.sample(range(1000, 10_000), len(names))
    rng.shuffle(names)
    rng.shuffle(leads)
    for name, lead, budget, part in zip(names, leads, budgets, parts, strict=False):
        opens = date(2025, 1, 1) + timedelta(days=rng.randrange(700))
        yield Project(
            name=f"Project {name}",
            lead=lead,
            city=rng.choice(CITIES),
            budget_eur=budget,
            opening=f"{opens.day} {MONTHS[opens.month - 1]} {opens.year}",
            part=f"{rng.choice('BDFHKMRT')}{rng.choice('AELPQXZ')}-{part}",
            vendor=rng.choice(VENDORS),
        )


def filler(rng: Random, template: str) -> str:
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
    body = [filler(rng, template) for template in rng.sample(FILLER, rng.randint(9, 16))]
    for variants in FACTS.values():
        body.insert(rng.randint(0, len(body)), rng.choice(variants).format(**project.facts()))
    body.insert(0, filler(rng, opening.replace("{name}", project.name)))
    paragraphs = [" ".join(body[at : at + 6]) for at in range(0, len(body), 6)]
    heading = f"[Document {number}] {title.format(name=project.name)}"
    return "\n\n".join([heading, *paragraphs])


AskAbout = Callable[[Random, Sequence[Project]], Puzzle]


def lookup_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    project = rng.choice(pack)
    fact = rng.choice(tuple(FACT_QUESTIONS))
    return FACT_QUESTIONS[fact].format(name=project.name), project.facts()[fact]


def two_step_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    project = rng.choice(pack)
    clue = rng.choice(
        (
            f"the project that is led by {project.lead}",
            f"the project whose pump has part number {project.part}",
        )
    )
    fact = rng.choice(("city", "budget", "opening", "vendor"))
    return FACT_QUESTIONS[fact].format(name=clue), project.facts()[fact]


def comparison_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    chosen = rng.sample(pack, 3)
    names = listed([project.name for project in chosen])
    richest = max(chosen, key=lambda project: project.budget_eur)
    return f"Which has the largest budget this year: {names}? Give its name.", richest.name


def counting_question(rng: Random, pack: Sequence[Project]) -> Puzzle:
    city = rng.choice(pack).city
    count = sum(project.city == city for project in pack)
    return f"How many of the projects in these documents are based in {city}?", str(count)


QA_KINDS: tuple[AskAbout, ...] = (
    lookup_question,
    two_step_question,
    comparison_question,
    lookup_question,
    two_step_question,
    counting_question,
)


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


def qa_row(rng: Random, target_words: int, ask: AskAbout) -> Row:
    context, pack = document_pack(rng, target_words)
    question, answer = ask(rng, pack)
    prompt = (
        "Read the documents and answer the question that follows them. Use only what the "
        f"documents say and answer in a few words.\n\n{context}\n\n\nQuestion: {question}\nAnswer:"
    )
    return {"context": context, "question": question, "answer": answer, "prompt": prompt}


def long_context_qa(count: int = 40, shortest: int = 2_300, longest: int = 18_400) -> list[Row]:
    """Packs from about 3K to about 23K tokens; more short ones than long ones."""
    rng = rng_for("long")
    span = longest - shortest
    sizes = [shortest + span * step**2 // (count - 1) ** 2 for step in range(count)]
    rng.shuffle(sizes)
    return [qa_row(rng, size, ask) for size, ask in zip(sizes, cycle(QA_KINDS), strict=False)]


# ========================== reasoning/logic_puzzles ==========================


def pruned(clues: list[T], unique: Callable[[Sequence[T]], bool]) -> list[T]:
    """Drop clues that the rest makes superfluous."""
    kept = list(clues)
    for clue in clues:
        rest = [other for other in kept if other is not clue]
        if unique(rest):
            kept = rest
    return kept


def enough_clues(
    rng: Random, make: Callable[[], T], unique: Callable[[Sequence[T]], bool], spare: int
) -> list[T]:
    """True clues until only one solution is left, plus at most `spare` that say it again."""
    clues: list[T] = []
    while not unique(clues):
        clue = make()
        if clue not in clues:
            clues.append(clue)
    needed = pruned(clues, unique)
    extra = [clue for clue in clues if clue not in needed]
    kept = needed + extra[:spare]
    rng.shuffle(kept)
    return kept


LineClue = tuple[str, str, str]  # kind, person, other person or place


def line_clue_holds(clue: LineClue, order: Sequence[str]) -> bool:
    kind, who, other = clue
    place = order.index(who)
    if kind == "before":
        return place < order.index(other)
    if kind == "right after":
        return place == order.index(other) + 1
    return place != int(other)


def line_clue(rng: Random, order: Sequence[str]) -> LineClue:
    """A true statement about an order of people."""
    while True:
        kind = rng.choice(("before", "before", "right after", "not at"))
        who, other = rng.sample(order, 2)
        clue = (kind, who, str(rng.randrange(len(order))) if kind == "not at" else other)
        if line_clue_holds(clue, order):
            return clue


def lineup_puzzle(rng: Random) -> Puzzle:
    order = rng.sample(FIRST_NAMES, rng.randint(4, 6))
    story, before, right_after, at = rng.choice(LINEUPS)

    def unique(clues: Sequence[LineClue]) -> bool:
        orders = permutations(order)
        return sum(all(line_clue_holds(c, list(o)) for c in clues) for o in orders) == 1

    def said(clue: LineClue) -> str:
        kind, who, other = clue
        if kind == "not at":
            return f"It is not true that {who} {at} {int(other) + 1}."
        return f"{who} {before if kind == 'before' else right_after} {other}."

    clues = enough_clues(rng, lambda: line_clue(rng, order), unique, spare=2)
    place = rng.randrange(len(order))
    people = listed(sorted(order))
    return (
        f"{len(order)} people {story}: {people}. No two of them share a place, and place 1 comes "
        f"first. {' '.join(said(clue) for clue in clues)}\n\nWho is at place {place + 1}? Answer "
        "with the name only.",
        order[place],
    )


def claim_text(claim: tuple[str, str, str]) -> str:
    kind, a, b = claim
    return {
        "liar": f"{a} is a liar.",
        "honest": f"{a} always tells the truth.",
        "same": f"{a} and {b} are of the same kind.",
        "differ": f"Exactly one of {a} and {b} is a liar.",
        "some": f"At least one of {a} and {b} is honest.",
    }[kind]


def claim_holds(claim: tuple[str, str, str], honest: dict[str, bool]) -> bool:
    kind, a, b = claim
    return {
        "liar": not honest[a],
        "honest": honest[a],
        "same": honest[a] == honest[b],
        "differ": honest[a] != honest[b],
        "some": honest[a] or honest[b],
    }[kind]


def liar_puzzle(rng: Random) -> Puzzle:
    people = rng.sample(FIRST_NAMES, rng.randint(3, 5))
    worlds = [
        dict(zip(people, kinds, strict=True))
        for kinds in product((True, False), repeat=len(people))
    ]
    while True:
        claims = {}
        for who in people:
            a, b = rng.sample([other for other in people if other != who], 2)
            claims[who] = (rng.choice(("liar", "honest", "same", "differ", "some")), a, b)
        fits = [w for w in worlds if all(claim_holds(c, w) == w[p] for p, c in claims.items())]
        if len(fits) == 1 and True in fits[0].values() and False in fits[0].values():
            break
    said = " ".join(f'{who} says: "{claim_text(claim)}"' for who, claim in claims.items())
    liars = sorted(who for who in people if not fits[0][who])
    return (
        "On a small island each person either always tells the truth or always lies. A traveller "
        f"meets {listed(people)} at the harbour. {said}\n\nWho of them are liars? List the names "
        "in alphabetical order, separated by commas.",
        ", ".join(liars),
    )


def swap_puzzle(rng: Random) -> Puzzle:
    story, thing = rng.choice(SWAPS)
    people = rng.sample(FIRST_NAMES, rng.randint(3, 6))
    held = dict(zip(people, rng.sample(TOKENS, len(people)), strict=True))
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


OwnerClue = tuple[bool, str, str]  # whether the two belong together, one thing, another


def owner_puzzle(rng: Random) -> Puzzle:
    size = rng.randint(3, 4)
    people = rng.sample(FIRST_NAMES, size)
    drinks, pets = rng.sample(DRINKS, size), rng.sample(PETS, size)
    worlds = [
        list(zip(people, d, p, strict=True))
        for d in permutations(drinks)
        for p in permutations(pets)
    ]
    truth = rng.choice(worlds)

    def holds(clue: OwnerClue, world: Sequence[tuple[str, str, str]]) -> bool:
        together, a, b = clue
        return any(a in entry and b in entry for entry in world) == together

    def make() -> OwnerClue:
        a, b = (rng.choice(group) for group in rng.sample((people, drinks, pets), 2))
        return (any(a in entry and b in entry for entry in truth), a, b)

    def unique(clues: Sequence[OwnerClue]) -> bool:
        return sum(all(holds(clue, world) for clue in clues) for world in worlds) == 1

    def label(thing: str) -> str:
        if thing in people:
            return thing
        return f"the person who drinks {thing}" if thing in drinks else f"the owner of the {thing}"

    def said(clue: OwnerClue) -> str:
        together, a, b = clue
        verb = "is" if together else "is not"
        return f"{capitalised(label(a))} {verb} {label(b)}."

    clues = enough_clues(rng, make, unique, spare=1)
    who, _, pet = rng.choice(truth)
    return (
        f"{listed(sorted(people))} live in one house. Each of them has a different favourite drink "
        f"({', '.join(sorted(drinks))}) and a different pet ({', '.join(sorted(pets))}). "
        f"{' '.join(said(clue) for clue in clues)}\n\nWho has the {pet}? Answer with the name.",
        who,
    )


def calendar_puzzle(rng: Random) -> Puzzle:
    who = rng.choice(FIRST_NAMES)
    day = date(rng.randint(2021, 2027), rng.randint(1, 12), rng.randint(1, 28))
    later, weeks, back = rng.randint(20, 90), rng.randint(2, 6), rng.randint(3, 15)
    end = day + timedelta(days=later + 7 * weeks - back)
    spoken = f"{day.day} {MONTHS[day.month - 1]} {day.year}"
    return (
        f"{who} plans an exhibition on {spoken}, which is a {WEEKDAYS[day.weekday()]}. The opening "
        f"is first set for exactly {later} days after that day. Then the hall turns out to be "
        f"taken and the opening is put off by {weeks} weeks. In the end a painter has no time, "
        f"so it is moved {back} days forward again, that is, to an earlier date.\n\nOn which day "
        "does the exhibition open? Answer with the date as YYYY-MM-DD and the day of the week.",
        f"{end.isoformat()}, {WEEKDAYS[end.weekday()]}",
    )


PUZZLE_KINDS = (
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
    parts = [rng.choice(PUZZLE_TASKS)]
    if rng.random() < 0.3:
        parts += [f"Example:\n{example[0]}\nAnswer: {example[1]}", "Now the puzzle to solve:"]
    return {"input": "\n\n".join([*parts, question]), "target": answer}


def logic_puzzles(count: int = 120) -> list[Row]:
    """The same number of each kind, mixed."""
    rng = rng_for("logic")
    rows: list[Row] = []
    for kind in PUZZLE_KINDS:
        puzzles = distinct(partial(kind, rng), count // len(PUZZLE_KINDS), key=lambda p: p[0])
        rows += [puzzle_row(rng, puzzle, example=kind(rng)) for puzzle in puzzles]
    rng.shuffle(rows)
    return rows


# ============================ reasoning/tool_use ============================


def function_schema(case: ToolCase) -> Row:
    """The function as OpenAI's API describes one."""
    properties: dict[str, Row] = {}
    for slot, (about, values) in case.slots.items():
        kind = "integer" if slot in INTEGER_SLOTS else "string"
        properties[slot] = {"type": kind, "description": about}
        if kind == "string" and len(values) <= 4:
            properties[slot]["enum"] = list(values)
    return {
        "type": "function",
        "function": {
            "name": case.name,
            "description": case.description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(case.slots),
            },
        },
    }


def arguments(values: dict[str, str]) -> Row:
    return {slot: int(v) if slot in INTEGER_SLOTS else v for slot, v in values.items()}


def call_id(rng: Random) -> str:
    """Mistral takes exactly nine letters or digits."""
    return "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789", k=9))


def first_exchange(rng: Random, case: ToolCase, values: dict[str, str]) -> list[Row]:
    """A question, the call it leads to, the result, and the assistant's reply."""
    identifier = call_id(rng)
    call = {"name": case.name, "arguments": json.dumps(arguments(values))}
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


def changed_values(rng: Random, case: ToolCase, values: dict[str, str]) -> dict[str, str]:
    slot = case.changed
    other = rng.choice([value for value in case.slots[slot][1] if value != values[slot]])
    return {**values, slot: other}


def tool_messages(rng: Random, case: ToolCase, kind: str) -> tuple[list[Row], Row | None]:
    """A conversation that ends with the user, and the call that should come next."""
    values = {slot: rng.choice(options) for slot, (_, options) in case.slots.items()}
    if kind == "no call":
        return [{"role": "user", "content": rng.choice(TOOL_SMALL_TALK)}], None
    if kind == "single":
        messages: list[Row] = [{"role": "user", "content": case.ask.format(**values)}]
    else:
        messages = first_exchange(rng, case, values)
        values = changed_values(rng, case, values)
        messages.append({"role": "user", "content": case.follow_up.format(**values)})
    return messages, {"name": case.name, "arguments": arguments(values)}


def tool_row(rng: Random, kind: str) -> Row:
    case, *unused = rng.sample(TOOL_CASES, rng.randint(2, 5))
    messages, expected = tool_messages(rng, case, kind)
    offered = [case, *unused]
    rng.shuffle(offered)
    return {
        "messages": [{"role": "system", "content": rng.choice(TOOL_SYSTEMS)}, *messages],
        "tools": [function_schema(offer) for offer in offered],
        "expected_call": expected,
    }


def tool_use() -> list[Row]:
    rng = rng_for("tools")
    rows: list[Row] = []
    for kind, count in (("single", 16), ("follow-up", 20), ("no call", 4)):
        rows += distinct(
            partial(tool_row, rng, kind), count, key=lambda row: str(row["messages"][1])
        )
    rng.shuffle(rows)
    return rows


# ================================= writing =================================


def datasets() -> dict[str, list[Row]]:
    """Every dataset by its path in the folder."""
    return {
        "math_word_problems.jsonl": math_word_problems(),
        "knowledge_quiz.csv": knowledge_quiz(),
        "code_repair.jsonl.gz": code_repair(),
        "long_context_qa.parquet": long_context_qa(),
        "reasoning/logic_puzzles.json": logic_puzzles(),
        "reasoning/tool_use.jsonl": tool_use(),
    }


def jsonl_bytes(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def gzip_bytes(data: bytes) -> bytes:
    """Without name and time in the header, which would change on every run."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def csv_bytes(rows: Sequence[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def puzzle_bytes(rows: Sequence[Row]) -> bytes:
    content = {"canary": PUZZLE_CANARY, "version": 1, "examples": rows}
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def parquet_bytes(rows: Sequence[Row]) -> bytes:
    # Imported here: whoever only wants the rows can do without pyarrow.
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(
        pyarrow.Table.from_pylist(list(rows)),
        buffer,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        data_page_size=1 << 26,  # one page per column: the rows repeat each other's sentences
        write_statistics=False,
    )
    return buffer.getvalue()


def encoded(path: str, rows: Sequence[Row]) -> bytes:
    if path.endswith(".jsonl.gz"):
        return gzip_bytes(jsonl_bytes(rows))
    writers = {
        ".jsonl": jsonl_bytes,
        ".csv": csv_bytes,
        ".parquet": parquet_bytes,
        ".json": puzzle_bytes,
    }
    return writers[Path(path).suffix](rows)


def main(folder: Path = DEFAULT_FOLDER) -> None:
    for path, rows in datasets().items():
        data = encoded(path, rows)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        print(f"{len(data):>9,} bytes  {len(rows):>4} rows  {target}")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
