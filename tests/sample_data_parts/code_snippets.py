"""The functions to repair: correct code, its tests, and edits that break it.

`@snippet name` starts one, then come its imports and its code, `@tests`, and for each mistake
`@bug right => wrong` with what a user notices. $item, $items, $owner, $amount and $Item stand for
the words of a domain.
"""

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
