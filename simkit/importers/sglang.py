"""SGLang's acceptance by request, as a log of steps whose order is not known.

`meta_info` of a response of `/generate`, or of its `choices`, or `sglext.spec_tokens_details` of a
chat's (pull request 33518) has (sgl-project/sglang, pull request 11144 and later, as of commit
015c872) `spec_verify_ct`, the steps; `spec_num_correct_drafts`, accepted tokens;
`spec_num_proposed_drafts`, which is not counted but the configured length times the steps; and
`spec_correct_drafts_histogram`, how many steps accepted 0, 1, 2, … tokens. `spec_accept_length` is
the output's tokens over the steps. Releases before have other names for the same:
`spec_accept_token_num` or `spec_accepted_drafts`, `spec_draft_token_num` or `spec_proposed_drafts`,
`spec_accept_histogram`. Under the name `spec_draft_token_num` some of them count the root of each
draft too, K + 1 tokens a step (pull request 13754: 940 for 188 steps with K = 4). There is nothing
by step.

So what each step drafted is not in it. It is known only if all drafted as much: a server that
adapts its steps reports proposals that were never drafted. Where what is verified is capped
(`spec_cap_length` and `spec_cap_lens_histogram`, which count the target's own token), the caps must
be those of whole drafts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from simkit.errors import ImporterError
from simkit.importers import acceptance, jsonl, laws, steps
from simkit.importers.ledger import each, hold
from traces.messages import how_many

_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_ROOTED = "spec_draft_token_num"  # its count may have the root
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", _ROOTED)
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_CAPS = ("spec_cap_length", "spec_cap_lens_histogram", "spec_block_accept_length")
_KNOWN = {
    "spec_verify_ct",
    "spec_accept_rate",
    "spec_accept_length",
    *_ACCEPTED,
    *_PROPOSED,
    *_HISTOGRAM,
    *_CAPS,
}


class _Part(NamedTuple):
    """Where a request's numbers are: its acceptance, its tokens, and the object of these."""

    counts: jsonl.Record
    whole: jsonl.Record
    usage: Any
    inside: str
    ended: Any


@dataclass
class _Seen(steps.Seen):
    """And whether proposals count the root of each draft."""

    roots: set[bool] = field(default_factory=set)


def load(
    file: str | Path, draft_length: int | None = None, drafts: steps.LoggedDrafts = steps.UNKNOWN
) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines, a response each.
        draft_length: tokens that every step drafted, K.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, a record has wrong fields or sums alone, the length
            is not given, or is not what the records say.
    """
    if draft_length is None or draft_length < 1:
        raise ImporterError(
            "SGLang reports the configured length times the steps, whatever was drafted: give"
            " --draft-length K if every step drafted K tokens (a server with --speculative-adaptive"
            " does not: what its steps drafted is not known)"
        )
    seen, length, notes = _Seen(), draft_length, []
    lines = jsonl.read(file, events=True)
    requests = list(each(lines, lambda line: _requests(line, length, seen)))
    for rooted in seen.roots:
        a_draft = f"{how_many(length + 1, 'token')} a step with the root"
        if not rooted:
            a_draft = (
                f"{how_many(length, 'token')} a step without the root; if that release counts it,"
                f" steps drafted {length - 1}, which is then the --draft-length"
            )
        notes.append(f"{_ROOTED} fits --draft-length {draft_length}: {a_draft}")
    none = "no line has a step that was verified: there is no draft"
    return steps.imported(requests, file, drafts, seen, none, notes)


def _requests(line: jsonl.Record, length: int, seen: _Seen) -> Iterator[steps.LoggedRequest]:
    for part in (part for body in steps.bodies(line) for part in _parts(body)):
        counts = part.counts
        own = {name for name in counts.fields if name.startswith("spec_")}
        seen.unknown.update(own - _KNOWN)
        if not any(_given(counts, name) for name in ("spec_verify_ct", *_HISTOGRAM)):
            seen.left_out["no step was verified"] += 1
            continue
        accepted = _accepted(counts, length, seen)
        usage = laws.usage(part.whole, part.usage, part.inside)
        _check_means(counts, length, accepted, usage[1])
        again = laws.count(counts, counts.fields, "total_retractions") or 0  # a token each
        yield steps.request(
            part.whole,
            "id",
            acceptance.LoggedSteps([length] * len(accepted), accepted, False),
            usage,
            part.ended,
            inside=part.inside,
            uncounted=again,
        )


def _parts(body: jsonl.Record) -> Iterator[_Part]:
    """Where acceptance is in a response.

    Raises:
        ImporterError: nowhere, or in no object.
    """
    if "meta_info" in body.fields:
        yield _meta(body, "meta_info", body.get("meta_info"))
        return
    choices, extra = steps.choices(body), body.fields.get("sglext")
    found = extra.get("spec_tokens_details") if isinstance(extra, dict) else None
    if found is not None:
        name = "sglext.spec_tokens_details"
        found = found[0] if isinstance(found, list) and len(found) == 1 else found
        if not isinstance(found, dict):
            raise body.error(f"{name} must be an object: tokens of several choices are one sum")
        counts = jsonl.Record(f"{body.where}: {name}", found)
        ended = choices[0].get("finish_reason") if len(choices) == 1 else None
        yield _Part(counts, body, body.fields.get("usage"), "usage", _kind(ended))
        return
    own = [(k, choice) for k, choice in enumerate(choices) if "meta_info" in choice]
    if not own:
        raise body.error("field meta_info is missing")
    for k, choice in own:
        yield _meta(body, f"choices[{k}].meta_info", choice["meta_info"])


def _meta(body: jsonl.Record, name: str, found: Any) -> _Part:
    inner = body.inside(name, found)
    return _Part(inner, inner, found, "", _kind(found.get("finish_reason")))


def _kind(ended: Any) -> Any:
    return ended.get("type") if isinstance(ended, dict) else ended


def _given(counts: jsonl.Record, name: str) -> bool:
    """Whether a field is there; SGLang fills those that it lacks with 0 and []."""
    value = counts.fields.get(name)
    return not (value is None or value == [] or (value == 0 and value is not False))


def _accepted(counts: jsonl.Record, length: int, seen: _Seen) -> list[int]:
    """What each step accepted, ascending.

    Raises:
        ImporterError: there is no histogram, or it contradicts the sums, or these the length.
    """
    if not any(name in counts.fields for name in _HISTOGRAM):
        raise counts.error(
            f"there is no {_HISTOGRAM[0]}: sums alone do not say how deep drafts are accepted"
        )
    verified = counts.count("spec_verify_ct")
    histogram = counts.whole(_HISTOGRAM[0], _either(counts, _HISTOGRAM)[1], 0)
    accepted = [a for a, n in enumerate(histogram) for _ in range(n)]
    said = f"its histogram has {how_many(len(accepted), 'step')}, spec_verify_ct {verified}"
    hold(counts, "histogram", len(accepted) == verified, said)
    most = max(accepted, default=0)
    said = f"a step accepted {how_many(most, 'token')}: not all drafted {length}"
    hold(counts, "length", most <= length, said)
    name, given = _either(counts, _ACCEPTED)
    total = counts.whole(name, [given], 0)[0]
    said = f"{name} is {total}, but its histogram comes to {sum(accepted)}"
    hold(counts, "sums", total == sum(accepted), said)
    _check_proposed(counts, length, verified, seen)
    return accepted


def _check_proposed(counts: jsonl.Record, length: int, verified: int, seen: _Seen) -> None:
    """Refuse proposals that are not the length times the steps, by one convention in a file.

    Raises:
        ImporterError: as said.
    """
    name, given = _either(counts, _PROPOSED)
    proposed = counts.whole(name, [given], 0)[0]
    fits = {False: verified * length, True: verified * (length + 1)}
    rooted = name == _ROOTED and proposed == fits[True]
    a_step, rest = divmod(proposed, verified) if verified else (0, 1)
    also = f", or {a_step - 1} with the root of each draft" if name == _ROOTED else ""
    hint = f"; it is {a_step} a step{also}" if not rest and a_step > 1 else ""
    said = (
        f"{name} is {proposed}, not {fits[False]}: not all steps drafted"
        f" {how_many(length, 'token')}{hint}"
    )
    fault = "rooted" if not rest and a_step > length else ""
    hold(counts, "sums", rooted or proposed == fits[False], said, fault)
    if name == _ROOTED:
        seen.roots.add(rooted)
        if len(seen.roots) > 1:
            raise counts.error(f"{name} counts the root of each draft, but not in all lines")


def _check_means(counts: jsonl.Record, length: int, accepted: list[int], n_completion: int) -> None:
    """Refuse means that the counts contradict, and caps below whole drafts.

    Raises:
        ImporterError: as said.
    """
    n, total = len(accepted), sum(accepted)
    if "spec_accept_rate" in counts.fields:
        laws.check_agrees(counts, "spec_accept_rate", total / _either(counts, _PROPOSED)[1])
    if "spec_accept_length" in counts.fields:
        laws.check_agrees(counts, "spec_accept_length", n_completion / n, 1 + total / n)
    if _given(counts, "spec_block_accept_length"):
        value = laws.number(counts, "spec_block_accept_length")
        said = f"spec_block_accept_length is {value:g}, not up to {length + 1}"
        hold(counts, "length", 0 <= value <= length + 1, said)
    caps = [length + 1] * n
    if _given(counts, "spec_cap_lens_histogram"):
        name = "spec_cap_lens_histogram"
        lengths = counts.whole(name, counts.fields[name], 0)
        caps = [cap for cap, m in enumerate(lengths) for _ in range(m)]
        said = f"{name} has {how_many(len(caps), 'step')}, spec_verify_ct {n}"
        hold(counts, "histogram", len(caps) == n, said)
    if _given(counts, "spec_cap_length"):
        laws.check_agrees(counts, "spec_cap_length", sum(caps) / n)
    if any(cap != length + 1 for cap in caps):
        raise counts.error(
            f"its steps verified from {min(caps)} to {how_many(max(caps), 'token')}, the target's"
            f" own among them, not {length + 1} each: what each of them verified is not known"
        )


def _either(counts: jsonl.Record, names: tuple[str, ...]) -> tuple[str, Any]:
    """A field under the first of its names that is there; others must say the same."""
    there = [name for name in names if name in counts.fields]
    if not there:
        raise counts.error(f"field {names[0]} is missing")
    for name in there[1:]:
        if counts.fields[name] != counts.fields[there[0]]:
            raise counts.error(f"{name} contradicts {there[0]}")
    return there[0], counts.fields[there[0]]
