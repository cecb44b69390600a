"""Arithmetic word problems with worked answers, from a seeded generator.

A problem is a short story of one quantity that changes in two to five steps; the answer repeats
each step as an equation and ends in a final line. A problem is a pure function of its seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

NAMES = (
    "Anna Ben Clara David Emma Felix Grace Henry Ida Jonas Kate Leo Mia Noah Olivia Paul Rosa "
    "Sam Tina Victor Wendy Yusuf Zoe Amir Bella Carlos Dina Erik Fatima Georg"
).split()
ITEMS = (
    "apples books marbles stamps pencils coins tickets cards eggs shells bottles candles buttons "
    "cookies flowers photos screws tiles boxes oranges letters bricks seeds cups toys plates"
).split()
PLACES = (
    "a shop, a school, a farm, a library, a small museum, a bakery, a workshop, a club, an office, "
    "a garden, a warehouse, a market stall"
).split(", ")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Step = tuple[str, str, int]  # (sentence of the question, sentence of the answer, new total)


def _gain(rng: random.Random, who: str, item: str, n: int) -> Step:
    k = rng.randint(3, 120)
    text = rng.choice(
        (
            f"Then {who} buys {k} more {item}.",
            f"On {rng.choice(DAYS)}, {who} gets {k} {item} from {rng.choice(NAMES)}.",
            f"After that, {who} finds {k} more {item} in a cupboard.",
            f"A friend brings {who} another {k} {item}.",
        )
    )
    return text, f"{who} gets {k} more: {n} + {k} = {n + k}.", n + k


def _loss(rng: random.Random, who: str, item: str, n: int) -> Step:
    k = rng.randint(1, max(1, n - 1))
    k = k if k <= 90 else rng.randint(10, 90)
    text = rng.choice(
        (
            f"Then {who} gives {k} {item} to {rng.choice(NAMES)}.",
            f"On {rng.choice(DAYS)}, {who} sells {k} of the {item}.",
            f"Unfortunately, {who} loses {k} {item} on the way home.",
            f"{who} uses {k} {item} for a project.",
        )
    )
    return text, f"{who} gives up {k}: {n} - {k} = {n - k}.", n - k


def _times(rng: random.Random, who: str, item: str, n: int) -> Step:
    k = rng.randint(2, 6)
    word = {2: "twice", 3: "three times", 4: "four times", 5: "five times", 6: "six times"}[k]
    text = rng.choice(
        (
            f"A year later, {who} has {word} as many {item} as before.",
            f"With some help, the number of {item} grows to {word} what it was.",
        )
    )
    return text, f"The number grows to {word} as many: {n} * {k} = {n * k}.", n * k


def _share(rng: random.Random, who: str, item: str, n: int) -> Step:
    k = rng.choice([d for d in range(2, 10) if n % d == 0])
    text = rng.choice(
        (
            f"{who} packs the {item} into {k} equal bags and keeps only one bag.",
            f"{who} shares the {item} equally among {k} people and keeps one share.",
        )
    )
    return text, f"One of {k} equal parts is {n} / {k} = {n // k}.", n // k


def _packs(rng: random.Random, who: str, item: str, n: int) -> Step:
    packs, each = rng.randint(2, 9), rng.randint(2, 12)
    total = packs * each
    text = rng.choice(
        (
            f"Later {who} orders {packs} packs with {each} {item} in each pack.",
            f"At {rng.choice(PLACES)}, {who} picks up {packs} boxes of {each} {item} each.",
        )
    )
    answer = (
        f"{packs} packs of {each} are {packs} * {each} = {total}. "
        f"Together that is {n} + {total} = {n + total}."
    )
    return text, answer, n + total


def _choices(n: int) -> list[Callable[[random.Random, str, str, int], Step]]:
    steps = [_gain, _packs]
    if n > 4:
        steps += [_loss, _loss]
    if n < 150:
        steps.append(_times)
    if n > 11 and any(n % d == 0 for d in range(2, 10)):
        steps += [_share, _share]
    return steps


def problem(seed: int | str) -> tuple[str, str]:
    """``(question, answer)``; the question ends in ``Answer:``, the answer begins with a space."""
    rng = random.Random(f"arithmetic-{seed}")
    who, item, n = rng.choice(NAMES), rng.choice(ITEMS), rng.randint(5, 99)
    opening = rng.choice(
        (
            f"{who} has {n} {item}.",
            f"At first, {who} owns {n} {item}.",
            f"{who} works at {rng.choice(PLACES)} and starts the week with {n} {item}.",
            f"On {rng.choice(DAYS)} morning there are {n} {item} on the table of {who}.",
        )
    )
    told, worked = [opening], [f"At the start there are {n} {item}."]
    for _ in range(rng.randint(2, 5)):
        text, answer, n = rng.choice(_choices(n))(rng, who, item, n)
        told.append(text)
        worked.append(answer)
    told.append(
        rng.choice(
            (
                f"How many {item} does {who} have now?",
                f"How many {item} are left in the end?",
                f"How many {item} does {who} have in the end?",
            )
        )
    )
    question = "Question: " + " ".join(told) + "\nAnswer:"
    return question, "\n" + "\n".join(worked) + f"\nThe answer is {n}."


def problems(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """``count`` problems, numbered under one seed."""
    for index in range(count):
        yield problem(f"{seed}-{index}")
