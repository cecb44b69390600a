"""Who decodes next: several decoders take turns, by whole sequences or by single steps.

A decoder's `stepwise` gives a generator. Before each step it yields how many tokens have come out
so far; it returns what `decode` would. A machine's speed that drifts within a minute gives one arm
more than another where each decodes a whole sequence. By steps the drift is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Literal, TypeVar

Turns = Literal["sequence", "step"]
Done = TypeVar("Done")


def finished(decoding: Generator[int, None, Done]) -> Done:
    """Run a decoding to its end."""
    while True:
        try:
            next(decoding)
        except StopIteration as done:
            return done.value


def in_turns(
    decodings: Mapping[int, Callable[[], Generator[int, None, Done]]], turns: Turns
) -> Iterator[tuple[int, Done]]:
    """Run decodings of the same prompt, and give what came of each when it is done.

    Args:
        decodings: by number; the first one begins.
        turns: "sequence": one after another. "step": the next step is always that of the decoding
            from which the fewest tokens have come, so that all are about as far in the text.
    """
    running = {number: begin() for number, begin in decodings.items()}
    emitted = dict.fromkeys(running, 0)
    while emitted:
        number = min(emitted, key=emitted.__getitem__) if turns == "step" else next(iter(emitted))
        try:
            emitted[number] = next(running[number])
        except StopIteration as done:
            del emitted[number]
            yield number, done.value
