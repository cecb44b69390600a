"""OpenVINO GenAI's extended metrics, as a log of steps with their times.

`pipeline.generate(…).extended_perf_metrics` has, under speculative decoding, a
`main_model_metrics.raw_metrics` with `m_batch_sizes`, the tokens that each step emitted, the first
of them the prompt's pass, and `m_durations`, the microseconds of each target pass; the draft
model's `m_durations` have an entry a draft pass. Its counters `get_num_draft_tokens()` and
`get_num_accepted_tokens()` leave out the last step (2026.4.1). How many tokens a step drafted is
not there: with `num_assistant_tokens` it is that many, or a token less than the budget has room
for; and where an output ends before its budget, its last token may have been drafted or not.

There is no file of its own: a line is what docs/engines.md writes of one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from simkit.importers import acceptance, jsonl, laws, step_times, steps
from simkit.importers.ledger import each, hold
from traces.messages import how_many

_NAME = "extended_perf_metrics"
_KNOWN = {
    "num_draft_tokens",
    "num_accepted_tokens",
    "main_model_metrics",
    "draft_model_metrics",
}


def load(
    file: str | Path, draft_length: int | None = None, drafts: steps.LoggedDrafts = steps.UNKNOWN
) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines, a call each.
        draft_length: `num_assistant_tokens`, where the lines do not have it.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, a line has wrong fields or contradicts itself, or
            what its steps drafted is not known.
    """
    seen = steps.Seen()
    requests = each(jsonl.read(file), lambda line: _request(line, draft_length, seen))
    none = f"no line has {_NAME} with a step: there is no draft"
    return steps.imported(requests, file, drafts, seen, none)


def _request(
    line: jsonl.Record, length: int | None, seen: steps.Seen
) -> Iterator[steps.LoggedRequest]:
    if line.fields.get(_NAME) is None:
        seen.left_out[f"no {_NAME}"] += 1
        return
    raw = line.get(_NAME, "main_model_metrics", "raw_metrics")
    seen.unknown |= line.fields[_NAME].keys() - _KNOWN
    if not isinstance(raw, dict):
        raise line.error("raw_metrics must be an object")
    main = line.inside(f"{_NAME}.main_model_metrics.raw_metrics", raw)
    emitted = main.whole("m_batch_sizes", main.get("m_batch_sizes"), 1)
    if len(emitted) < 2:
        seen.left_out["no step behind the prompt's"] += 1
        return
    n = line.count("num_generated_tokens")
    said = f"m_batch_sizes sum to {sum(emitted)}, but num_generated_tokens is {n}"
    hold(line, "sums", sum(emitted) == n and emitted[0] == 1, said)
    prompt = laws.count(line, line.fields, "num_input_tokens") or 0
    accepted = [k - 1 for k in emitted[1:]]
    drafted, by_budget = _drafted(line, accepted, n, length)
    for a, d in zip(accepted, drafted, strict=True):
        hold(line, "length", a <= d, f"a step accepted {a} of {how_many(d, 'draft token')}")
    times = _times(line, main, drafted)
    if not by_budget:  # whether an EOS at its end was drafted is not known
        drafted = [*drafted[:-1], accepted[-1]]
    own = acceptance.LoggedSteps(drafted, accepted, True)
    ended = "length" if by_budget else None
    request = steps.request(line, "id", own, (prompt, n), ended, inside="", uncounted=0)
    yield request._replace(times=times)


def _drafted(
    line: jsonl.Record, accepted: list[int], n: int, given: int | None
) -> tuple[list[int], bool]:
    """What each step drafted, and whether the budget cut it.

    Args:
        line: of the call.
        accepted: by each step.
        n: tokens of the output.
        given: the length, where the line does not have it.

    Raises:
        ImporterError: the length is not known, or neither all steps nor those before the budget's
            end drafted as much.
    """
    length = laws.count(line, line.fields, "num_assistant_tokens") or given
    if not length:
        raise line.error("what its steps drafted is not in it: give --draft-length K")
    counts = jsonl.Record(f"{line.where}: {_NAME}", line.fields[_NAME])
    total = laws.count(counts, counts.fields, "num_draft_tokens")
    taken = laws.count(counts, counts.fields, "num_accepted_tokens")
    if taken is not None:  # without the last step
        said = f"num_accepted_tokens is {taken}, but its steps before the last come to"
        hold(counts, "sums", taken == sum(accepted[:-1]), f"{said} {sum(accepted[:-1])}")
    budget = laws.count(line, line.fields, "max_new_tokens")
    # the first: what is surely known
    ways = [budget] if budget is not None else [n, n + length + 1]
    before = [*accumulate((a + 1 for a in accepted), initial=1)][:-1]  # tokens out by then
    found = [[max(0, min(length, limit - known - 1)) for known in before] for limit in ways]
    for drafted in found:
        if total is None or sum(drafted[:-1]) == total:
            return drafted, budget == n
    said = f"num_draft_tokens is {total}, not {sum(found[-1][:-1])}"
    hold(counts, "sums", False, f"{said}: not all steps drafted {how_many(length, 'token')}")
    raise AssertionError


def _times(
    line: jsonl.Record, main: jsonl.Record, drafted: list[int]
) -> step_times.StepTimes | None:
    """Seconds of the passes; those of the draft where there is one a drafted token."""
    given = main.fields.get("m_durations")
    if given is None:
        return None
    if not isinstance(given, list):
        raise main.error("m_durations must be a list of microseconds")
    spans = [step_times.seconds(main, "m_durations", one, 1e-6) for one in given]
    if len(spans) - 1 != len(drafted):
        raise main.error(f"m_durations has {len(spans) - 1} times for {len(drafted)} steps")
    model = line.fields[_NAME].get("draft_model_metrics")
    inner = model.get("raw_metrics") if isinstance(model, dict) else None
    passes = inner.get("m_durations") if isinstance(inner, dict) else None
    drafts: list[list[float]] = []
    if isinstance(passes, list) and 0 <= len(passes) - sum(drafted) <= 1:
        each_s = [step_times.seconds(line, "m_durations", one, 1e-6) for one in passes]
        at = len(passes) - sum(drafted)  # an entry of the prompt's, in some calls
        for n in drafted:
            drafts.append(each_s[at : at + n])
            at += n
    return step_times.StepTimes(spans[0], spans[1:], True, drafts)
