"""Known faults of engines' logs: what each looks like, and where it is known from.

This table is their only owner. Every import looks for all of them; what is found is a note of the
import and of every replay of that log, and `simkit import --check` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simkit.importers import signs
from traces.messages import how_many


class LoggedCounts(NamedTuple):
    """What faults are looked for in, by request.

    Attributes:
        drafted: tokens of each step.
        accepted: as many.
        behind: tokens that the last step emitted behind the output's end.
        surplus: tokens of the output that no logged step emitted.
        ordered: whether all steps stand in their order.
        totals: whether the sums of some requests alone are known, spread evenly.
        marks: what an importer has seen itself, by the fault's name.
    """

    drafted: Sequence[Sequence[int]]
    accepted: Sequence[Sequence[int]]
    behind: Sequence[int]
    surplus: Sequence[int]
    ordered: bool
    totals: bool
    marks: Mapping[str, str]


class KnownFault(NamedTuple):
    """A row of the table.

    Attributes:
        name: its word.
        find: what is seen of it, a line each.
        words: what looks like that.
        source: a public thread, or a file where none was found.
    """

    name: str
    find: Callable[[LoggedCounts], Iterator[str]]
    words: str
    source: str


def _past_end(log: LoggedCounts) -> Iterator[str]:
    """A last step that accepted more than its output has; the target's own token may miss."""
    if any(n > 1 for n in log.behind):
        yield behind(log)


def behind(log: LoggedCounts) -> str:
    """What to say of outputs that end inside their last draft."""
    cut = [n for n in log.behind if n]
    taken = "; which was the last is not in the log: one that accepted the most is taken for it"
    outputs = how_many(len(cut), "output ends inside what its", "outputs end inside what their")
    left_out = f"left out {how_many(sum(cut), 'token')} behind"
    return f"{outputs} last step emitted: {left_out}{'' if log.ordered else taken}"


def _one_more(log: LoggedCounts) -> Iterator[str]:
    if _one_each(log.behind, log.accepted):
        yield "every output ends as many tokens before the end of its steps as it has steps"


def _one_fewer(log: LoggedCounts) -> Iterator[str]:
    if _one_each(log.surplus, log.accepted):
        yield "every output has as many tokens beyond those of its steps as it has steps"


def _one_each(tokens: Sequence[int], steps: Sequence[Sequence[int]]) -> bool:
    """Whether every request has as many of some tokens as steps, and more than one of these."""
    stepped = [(n, len(own)) for n, own in zip(tokens, steps, strict=True) if own]
    return bool(stepped) and all(n == many > 1 for n, many in stepped)


def _counted(find: Callable, ordered: bool = False) -> Callable[[LoggedCounts], Iterator[str]]:
    """Looks for a sign, of steps that stand in their order where `ordered`."""

    def found(log: LoggedCounts) -> Iterator[str]:
        if not log.totals and (log.ordered or not ordered):
            yield from find(log.drafted, log.accepted)

    return found


FAULTS = (
    KnownFault(
        "past_end",
        _past_end,
        "a log that counts tokens accepted past an EOS, a word to stop at or the budget looks like"
        " that",
        "vllm-project/vllm#56101",
    ),
    KnownFault(
        "one_more_a_step",
        _one_more,
        "a log that counts the target's own token as accepted looks like that",
        "sgl-project/sglang#23530",
    ),
    KnownFault(
        "one_fewer_a_step",
        _one_fewer,
        "a log that counts one accepted token too few a step looks like that",
        "sgl-project/sglang#24965",
    ),
    KnownFault(
        "rooted",
        _counted(signs.last_token),
        "a log that counts one token too many a draft, its root or nodes of a tree, looks like"
        " that",
        "sgl-project/sglang#13212",
    ),
    KnownFault(
        "zero_filled",
        _counted(signs.at_the_end, ordered=True),
        "drafts that are filled with zeros past the drafter's context look like that, and loops"
        " that only the target is in; they count as rejected",
        "vllm-project/vllm#58080",
    ),
    KnownFault(
        "placeholders",
        _counted(signs.at_the_start, ordered=True),
        "placeholders in the drafter's place look like that; they count as rejected",
        "vllm-project/vllm#45237",
    ),
    KnownFault(
        "even_spread",
        _counted(signs.evenly),
        "a histogram that was made up by spreading sums evenly looks like that, and simulated"
        " acceptance",
        "ai-dynamo/aiperf, src/aiperf/spec_decode/llamacpp_adapter.py at 5850dd4",
    ),
    KnownFault(
        "loops",
        _counted(signs.loops, ordered=True),
        "an output that repeats itself looks like that: acceptance is then the loop's, not the"
        " drafter's",
        "Blackwellboy/model-serving-minefield#108",
    ),
)
"""One row a fault."""

_BY_NAME = {fault.name: fault for fault in FAULTS}


def hint(name: str) -> str:
    """What to add to a complaint that looks like a known fault; "" for none."""
    if not name:
        return ""
    fault = _BY_NAME[name]
    return f"; {fault.words} ({fault.source})"


def found(log: LoggedCounts) -> Iterator[tuple[KnownFault, str]]:
    """Each fault that a log looks like, with what was seen."""
    for fault in FAULTS:
        if mark := log.marks.get(fault.name):
            yield fault, mark
        for seen in fault.find(log):
            yield fault, seen


def note(fault: KnownFault, seen: str) -> str:
    """One line of a fault that was found."""
    return f"{seen}: {fault.words} ({fault.source})"
