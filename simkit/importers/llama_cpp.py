"""llama.cpp's server: its streams as a log of steps with their times, its own log as histograms.

**Streams.** Each chunk of `POST /completion` or of the OpenAI routes that was asked for with
`stream` and `timings_per_token` has `timings` (pull request 12603): `draft_n` and
`draft_n_accepted`, drafted and accepted tokens so far, `predicted_ms`, the milliseconds of
decoding so far, `predicted_n`, the tokens so far; `prompt_n`, `cache_n`, `prompt_ms` of the prompt.
Where one of the first three changes a step has ended; the first chunk is the prompt's own token. A
token that ends inside a character comes with the next one's chunk. An EOS that was drafted counts
as the target's own token: so where an output ends in one, no rejection is located in its last step.
An answer that was not streamed has the sums alone.

**The server's log** has a line a request (pull request 24536): `draft acceptance = … (A accepted /
D generated), mean acceptance length = …, acceptance rate per position = (…)`, of which the first
numbers are sums, the last P(a >= j): with them the histogram is known, if all but one step drafted
as much.

Its Prometheus counters (pull request 26389) are sums over requests: `simkit import profile` reads
them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simkit.errors import ImporterError
from simkit.importers import acceptance, jsonl, laws, step_times, steps
from simkit.importers.ledger import each, hold
from traces import reading
from traces.messages import how_many

_TIMES = ("draft_n", "draft_n_accepted", "predicted_n")
_LINE = re.compile(
    r"task\s+(?P<task>-?\d+) \| draft acceptance = (?P<rate>[\d.]+) \(\s*(?P<accepted>\d+) accepted"
    r" /\s*(?P<drafted>\d+) generated\), mean (?:acceptance length|len) =\s*(?P<mean>[\d.]+)"
    r"(?:, acceptance rate per position = \((?P<rates>[\d., ]*)\))?"
)
_EVAL = re.compile(
    r"task\s+(?P<task>-?\d+) \|\s+(?P<what>prompt eval|eval) time =\s*(?P<ms>[\d.]+) ms /\s*"
    r"(?P<n>\d+) tokens"
)


class StreamMark(NamedTuple):
    """Sums up to the end of a step, or what one step adds to them.

    Attributes:
        drafted: tokens.
        accepted: of them.
        emitted: output tokens.
        ms: milliseconds of decoding.
    """

    drafted: int
    accepted: int
    emitted: int
    ms: float

    def is_alike(self, other: StreamMark) -> bool:
        """Whether no step ended between the two."""
        return self._replace(emitted=0) == other._replace(emitted=0)


def load(
    file: str | Path, draft_length: int | None = None, drafts: steps.LoggedDrafts = steps.UNKNOWN
) -> steps.Imported:
    """A log of steps.

    Args:
        file: chunks of streams, a line each (`data: {…}`), or the server's log.
        draft_length: tokens that every step drafted, K, where the file has sums or a histogram.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, a stream is broken off or contradicts itself, or
            there are sums that do not say what each step drafted.
    """
    seen = steps.Seen()
    if _is_text(file):
        requests = each(_lines(file), lambda line: _of_line(line, draft_length))
    else:
        streams = _streams(jsonl.read(file, events=True))
        requests = each(streams, lambda end: _of_stream(end, draft_length, seen))
    none = "nothing was drafted in it: ask the server for timings_per_token and stream"
    return steps.imported(requests, file, drafts, seen, none)


def _is_text(file: str | Path) -> bool:
    """Whether a file is the server's log, of which no line is an object or an event."""
    first = next((line for _, line in reading.lines(file, math.inf, ImporterError)), "").strip()
    return bool(first) and not first.startswith(("{", "data:"))


def _streams(chunks: Iterator[jsonl.Record]) -> Iterator[jsonl.Record]:
    """The last chunk of each stream, with all of them as its field `chunks`.

    Raises:
        ImporterError: a stream has no last chunk.
    """
    opened: dict[str | None, list[jsonl.Record]] = {}
    ended: set[str | None] = set()
    for chunk in chunks:
        name = chunk.fields.get("id")
        name = name if isinstance(name, str) else None
        if name in ended and chunk.fields.get("choices") == []:
            continue  # the usage, behind the end
        own = opened.setdefault(name, [])
        if isinstance(chunk.fields.get("timings"), dict):
            own.append(chunk)
        if chunk.fields.get("stop") is True or any(x is not None for x in _endings(chunk)):
            ended.add(name)
            yield jsonl.Record(chunk.where, {**chunk.fields, "chunks": opened.pop(name)})
    for own in opened.values():
        for chunk in own[-1:]:
            raise chunk.error("the stream breaks off before its end")


def _endings(chunk: jsonl.Record) -> list[Any]:
    """Why each choice ended; None where it has not."""
    return [choice.get("finish_reason") for choice in steps.choices(chunk)]


def _of_stream(
    last: jsonl.Record, length: int | None, seen: steps.Seen
) -> Iterator[steps.LoggedRequest]:
    chunks: list[jsonl.Record] = last.get("chunks")
    if not chunks:
        seen.left_out["no timings"] += 1
        return
    marks = [_mark(chunk) for chunk in chunks]
    for before, here in zip(marks, marks[1:], strict=False):
        falls = [name for name, a, b in zip(_TIMES, before, here, strict=False) if b < a]
        fallen = falls[0] if falls else "predicted_ms"
        hold(last, "stream", not falls and here.ms >= before.ms, f"{fallen} falls in it")
    timings = last.inside("timings", chunks[-1].fields["timings"])
    if not marks[-1].drafted:
        seen.left_out["nothing was drafted"] += 1
        return
    prompts = {_prompt(chunk) for chunk in chunks}
    hold(last, "stream", len(prompts) == 1, "its chunks are of several prompts")
    usage = (prompts.pop(), marks[-1].emitted)
    by_budget = last.fields.get("stop_type") == "limit" or "length" in _endings(last)
    ended = "length" if by_budget else None
    if len(marks) == 1 or marks[0].emitted > 1 and marks[0].drafted == marks[-1].drafted:
        own = _sums(last, marks[-1], length)
        yield steps.request(last, "", own, usage, ended, inside="timings")
        return
    found = _steps(marks)
    if any(own.emitted > own.accepted + 1 for own in found):
        seen.left_out["two of its steps came out in one chunk"] += 1
        return
    for own in found:
        most = f"a step accepted {own.accepted} of {how_many(own.drafted, 'draft token')}"
        hold(last, "length", own.accepted <= own.drafted, most)
    if not by_budget and found:  # whether its last token was drafted is not known
        found[-1] = found[-1]._replace(drafted=found[-1].accepted)
    logged = acceptance.LoggedSteps([o.drafted for o in found], [o.accepted for o in found], True)
    prefill = step_times.seconds(timings, "prompt_ms", timings.get("prompt_ms"), 1e-3)
    times = step_times.StepTimes(prefill, [own.ms / 1e3 for own in found])
    request = steps.request(last, "", logged, usage, ended, inside="timings", uncounted=0)
    yield request._replace(times=times)


def _prompt(chunk: jsonl.Record) -> int:
    """Tokens of the prompt, those in the cache among them."""
    inner = chunk.inside("timings", chunk.fields["timings"])
    return sum(laws.count(inner, inner.fields, name) or 0 for name in ("prompt_n", "cache_n"))


def _mark(chunk: jsonl.Record) -> StreamMark:
    inner = chunk.inside("timings", chunk.fields["timings"])
    given = [inner.fields.get(name, 0) for name in _TIMES[:2]]
    drafted, accepted = inner.whole("draft_n and draft_n_accepted", given, 0)
    emitted = inner.count("predicted_n", laws.MOST_PROMPT)
    ms = step_times.seconds(inner, "predicted_ms", inner.get("predicted_ms"), 1e-3) * 1e3
    return StreamMark(drafted, accepted, emitted, ms)


def _steps(marks: list[StreamMark]) -> list[StreamMark]:
    """What each step did."""
    ends = [StreamMark(0, 0, 1, 0.0)] if marks[0].emitted > 1 else []
    for mark in marks:
        if ends and mark.is_alike(ends[-1]):
            ends[-1] = mark
        else:
            ends.append(mark)
    return between(ends)


def between(ends: Sequence[StreamMark]) -> list[StreamMark]:
    """What each step added; a token that was held back counts where it was decoded.

    Args:
        ends: of the prompt's pass and of all steps, in their order.
    """
    found = []
    for a, b in zip(ends, ends[1:], strict=False):
        sums = b.drafted - a.drafted, b.accepted - a.accepted, b.emitted - a.emitted
        found.append(StreamMark(*sums, b.ms - a.ms))
    for k, (own, after) in enumerate(zip(found, found[1:], strict=False)):
        lacks = own.accepted + 1 - own.emitted  # its last token came with the next step's
        if 0 < lacks < after.emitted:
            found[k] = own._replace(emitted=own.emitted + lacks)
            found[k + 1] = after._replace(emitted=after.emitted - lacks)
    return found


def _sums(record: jsonl.Record, whole: StreamMark, length: int | None) -> acceptance.LoggedSteps:
    """Steps behind the sums of an answer: as many as tokens that came from no draft.

    Raises:
        ImporterError: they did not all draft as much, or that is not given.
    """
    n = whole.emitted - whole.accepted - 1  # the prompt's token
    return acceptance.evenly(record, n, whole.drafted, whole.accepted, length)


def _lines(file: str | Path) -> Iterator[jsonl.Record]:
    """A record a request of the server's log."""
    seen: dict[str, dict[str, Any]] = {}
    for number, line in reading.lines(file, math.inf, ImporterError):
        if found := _EVAL.search(line):
            kind = "prompt_n" if found["what"] == "prompt eval" else "predicted_n"
            seen.setdefault(found["task"], {})[kind] = int(found["n"])
        elif found := _LINE.search(line):
            own = seen.pop(found["task"], {})
            yield jsonl.Record(f"{file}: line {number}", {**own, **found.groupdict()})


def _of_line(line: jsonl.Record, length: int | None) -> Iterator[steps.LoggedRequest]:
    accepted, drafted = int(line.get("accepted")), int(line.get("drafted"))
    n_output = line.get("predicted_n")
    rate = jsonl.Record(line.where, {"draft acceptance": float(line.get("rate"))})
    laws.check_agrees(rate, "draft acceptance", accepted / drafted if drafted else 0.0)
    if not drafted:
        return
    usage = (line.fields.get("prompt_n", 0), n_output)
    counts = _histogram(line, accepted)
    if counts is None:
        own = _sums(line, StreamMark(drafted, accepted, n_output, 0.0), length)
    else:
        own = acceptance.LoggedSteps(_drafted(line, counts, drafted), counts, False)
    yield steps.request(line, "", own, usage, inside="eval time")


def _histogram(line: jsonl.Record, accepted: int) -> list[int] | None:
    """What each step accepted, ascending, of its shares by position; None where there are none.

    Raises:
        ImporterError: no number of steps gives the shares and the mean that are printed.
    """
    if not line.fields.get("rates"):
        return None
    rates = [float(rate) for rate in line.get("rates").split(",")]
    mean = float(line.get("mean"))
    for n in range(max(1, accepted // len(rates)), accepted + 10_000):
        reached = [round(rate * n) for rate in rates]
        fits = all(abs(rate * n - m) <= 5.1e-4 * n for rate, m in zip(rates, reached, strict=True))
        if fits and sum(reached) == accepted and abs(1 + accepted / n - mean) <= 5.1e-3:
            falls = [n, *reached, 0]
            return [a for a in range(len(falls) - 1) for _ in range(falls[a] - falls[a + 1])]
    hold(line, "means", False, f"no number of steps gives these rates and a mean of {mean:g}")
    return None


def _drafted(line: jsonl.Record, accepted: list[int], drafted: int) -> list[int]:
    """What each step drafted: as much as the shares have positions, but for one that was cut.

    Raises:
        ImporterError: that is not what the sum says.
    """
    length = len(line.get("rates").split(","))
    lacks = len(accepted) * length - drafted
    cut = [k for k, a in enumerate(accepted) if a <= length - lacks]
    if not 0 <= lacks < length or not cut:
        raise line.error(
            f"{how_many(len(accepted), 'step')} drafted {drafted:,} tokens, not {length} each: what"
            " each of them drafted is not known"
        )
    found = [length] * len(accepted)
    found[cut[-1]] -= lacks  # by the budget: one that accepted the most is taken for it
    return found
