"""Two hundred word problems of primary-school maths, as chats; every answer is computed."""

from random import Random

from tests.sample_data_parts.helpers import Puzzle, Row, distinct, lines, rng_for
from tests.sample_data_parts.words import CITIES, CROPS, FIRST_NAMES, GOODS, ORDINALS

SYSTEMS = lines("""
    Solve the problem step by step, then give the result on its own line as "Answer: <number>".
    You are a patient maths tutor. Show your working in short steps and end with the number alone.
    Work out the answer. Write each calculation on a new line and finish with the number.
    You are taking a primary-school maths test. Example question: Tom has 4 bags with 6 marbles \
    each and gives away 5 marbles; how many are left? Example solution: 4 * 6 = 24 marbles in all, \
    and 24 - 5 = 19 are left. Answer: 19. Now solve the next question in the same way, with one \
    calculation per sentence.
""")
ASIDES = lines("""
    It rained for most of that week.
    A neighbour's dog watched the whole thing from the gate.
    Last year nobody had kept a note of the numbers, so this time everything was written down.
    Two friends had promised to help but could not come.
    The radio in the corner played old songs the whole time.
    A poster on the wall said that the next fair would be in 45 days.
""")


def dollars(cents: int) -> str:
    """`dollars(1250)` is "$12.50", `dollars(300)` is "$3"."""
    return f"${cents // 100}.{cents % 100:02}" if cents % 100 else f"${cents // 100}"


def clock(minutes: int) -> str:
    """`clock(545)` is "9:05"."""
    return f"{minutes // 60}:{minutes % 60:02}"


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
    return (
        f"A pancake recipe for {base} people needs {flour} grams of flour and {sugar} grams of "
        f"sugar. {who} expects {guests} people for breakfast and scales the recipe so that "
        "everybody gets the same share. How many grams of flour and sugar together are needed?",
        str((flour + sugar) * guests // base),
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


KINDS = (
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
    return " ".join([*rng.sample(ASIDES, rng.choice((0, 0, 0, 1, 1, 2, 3))), question])


def rows() -> list[Row]:
    rng = rng_for("math")
    problems = distinct(lambda: rng.choice(KINDS)(rng), 200, key=lambda problem: problem[0])
    return [
        {
            "messages": [
                {"role": "system", "content": rng.choice(SYSTEMS)},
                {"role": "user", "content": with_asides(rng, question)},
            ],
            "answer": answer,
        }
        for question, answer in problems
    ]
