"""Children sampled without replacement, by enumeration: the laws that an implementation must have.

A node's children x1, x2, … are the draft's tokens in the order of its exponential race, which is
sampling from q without replacement (EAGLE-1, SpecInfer, Sequoia). Recursive rejection asks them one
after the other, one a *round*. With p1 = p and q1 = q, round r accepts x_r with chance
min(1, p_r(x_r) / q_r(x_r)); if it does not,

    p_{r+1} = norm(max(p_r - q_r, 0))        q_{r+1} = q_r without x_r, norm

and a node with b children, all of them rejected, draws y from p_{b+1}. If rounds go on until one
accepts, or the draft has no token left, that round does not depend on b: the node holds y iff it is
at most b. So the round alone need be recorded, once for every b.

All numbers are fractions, so that laws can be compared exactly; floats work too. A law is a
dictionary of outcomes and their chances, without those that cannot be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

Chances = tuple[Any, ...]
"""A distribution: the chance of each token."""

Law = dict[Any, Any]


class Rounds(NamedTuple):
    """An outcome of a node.

    Attributes:
        children: x1, x2, …, as many as are asked for, or as the draft has.
        round: 1-based, that which accepted; None if none of the children was accepted.
        token: y.
    """

    children: tuple[int, ...]
    round: int | None
    token: int


def gathered(outcomes: Iterable[tuple[Any, Any]]) -> Law:
    """The law of outcomes, some of which may be named several times."""
    law: defaultdict[Any, Any] = defaultdict(Fraction)
    for outcome, chance in outcomes:
        if chance:
            law[outcome] += chance
    return dict(law)


def norm(weights: Iterable[Any]) -> Chances:
    """Weights that sum to 1; () if there are none."""
    weights = tuple(weights)
    whole = sum(weights)
    return tuple(weight / whole for weight in weights) if whole else ()


def left(p: Chances, q: Chances) -> Chances:
    """norm(max(p - q, 0)); () if p is q, so that nothing is ever rejected."""
    return norm(max(a - b, 0 * a) for a, b in zip(p, q, strict=True))


def without(q: Chances, token: int) -> Chances:
    """The draft's distribution once a token is taken; () if it was the last one."""
    return norm(0 * x if k == token else x for k, x in enumerate(q))


def races(q: Chances, most: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The first `most` tokens of an exponential race, fewer if q has fewer; with their chances."""
    if not q or most == 0:
        yield (), Fraction(1)
        return
    for token, chance in enumerate(q):
        if chance:
            for rest, c in races(without(q, token), most - 1):
                yield (token, *rest), chance * c


def recursive_rejection(p: Chances, q: Chances, children: Sequence[int]) -> Law:
    """The law of (round, y) given a node's children: the words at the top of this file.

    Args:
        p: of the target.
        q: of the draft, from which they were drawn.
        children: in the order of the race, no token twice.
    """

    def go(p: Chances, q: Chances, number: int, reached: Any) -> Iterator[tuple[Any, Any]]:
        if number > len(children):
            yield from (((None, y), reached * chance) for y, chance in enumerate(p))
            return
        token = children[number - 1]
        keep = min(p[token] / q[token], 1)
        yield (number, token), reached * keep
        if keep < 1:
            rejected = reached * (1 - keep)
            yield from go(left(p, q), without(q, token), number + 1, rejected)

    return gathered(go(p, q, 1, Fraction(1)))


def standard(p: Chances, q: Chances, b: int) -> Law:
    """The law of `Rounds` at a node with b children, as a decoder has it that samples them."""
    return gathered(
        (Rounds(children, *outcome), chance * c)
        for children, chance in races(q, b)
        for outcome, c in recursive_rejection(p, q, children).items()
    )


def unbounded(p: Chances, q: Chances) -> Law:
    """The law of `Rounds` if they go on until one accepts: all that a recording need know."""
    return standard(p, q, len(q))


def at_most(law: Law, b: int) -> Law:
    """What a node with b children makes of unbounded rounds: it holds y iff the round is <= b."""
    return gathered(
        (
            Rounds(found.children[:b], found.round if (found.round or b + 1) <= b else None, y),
            chance,
        )
        for found, chance in law.items()
        for y in [found.token]
    )


def given_output(p: Chances, q: Chances, y: int) -> Law:
    """The law of (children, round) given that y came out: how rounds are drawn once y is known.

    Round r accepts iff u_r p_r(y) < q_r(y), with u_r uniform; x_r is y then, else it is drawn from
    norm(max(q_r - p_r, 0)), and p and q go on as above. Behind the accepted child the race goes on
    alone. For one child it is the rule of the target coupling.
    """

    def go(p: Chances, q: Chances, taken: tuple[int, ...], reached: Any) -> Iterator:
        if not q:
            yield (taken, None), reached
            return
        keep = min(q[y] / p[y], 1)
        if keep:
            for rest, chance in races(without(q, y), len(q)):
                yield ((*taken, y, *rest), len(taken) + 1), reached * keep * chance
        if keep < 1:
            for token, chance in enumerate(left(q, p)):
                if chance:
                    behind = left(p, q), without(q, token), (*taken, token)
                    yield from go(*behind, reached * (1 - keep) * chance)

    return gathered(go(p, q, (), Fraction(1)))


def round_given_output(p: Chances, q: Chances, y: int) -> Law:
    """The law of the round alone given y; None: no number of children would hold it."""
    return gathered((number, chance) for (_, number), chance in given_output(p, q, y).items())
