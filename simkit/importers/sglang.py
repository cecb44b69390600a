"""SGLang's `meta_info` by request, as a log of steps whose order is not known.

A response of `/generate` has (sgl-project/sglang, pull request 11144 and later, as of commit
015c872) `spec_verify_ct`, the steps; `spec_num_correct_drafts`, accepted tokens;
`spec_num_proposed_drafts`, which is not counted but the configured length times the steps; and
`spec_correct_drafts_histogram`, how many steps accepted 0, 1, 2, … tokens. Releases before have
other names for the same: `spec_accept_token_num` or `spec_accepted_drafts`, `spec_draft_token_num`
or `spec_proposed_drafts`, `spec_accept_histogram`. There is nothing by step.

So what each step drafted is not in it. It is known only if all drafted as much: a server that
adapts its steps reports proposals that were never drafted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simkit.errors import ImporterError
from simkit.importers import jsonl, steps

_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_NUMBERS = ("spec_accept_rate", "spec_accept_length")


def load(
    file: str | Path, draft_length: int | None = None, drafts: steps.Drafts = steps.UNKNOWN
) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines, a response each.
        draft_length: tokens that every step drafted.
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
    return steps.imported(_requests(file, draft_length), file, drafts)


def _requests(file: str | Path, length: int) -> Iterator[steps.Request]:
    for record in jsonl.read(file):
        found = record.get("meta_info")
        if not isinstance(found, dict):
            raise record.error("meta_info must be an object")
        inner = jsonl.Record(f"{record.where}: meta_info", found)
        _check_known(inner)
        verified = inner.whole("spec_verify_ct", [inner.get("spec_verify_ct")], 0)[0]
        histogram = inner.whole(_HISTOGRAM[0], _either(inner, _HISTOGRAM), 0)
        sums = {
            name[0]: inner.whole(name[0], [_either(inner, name)], 0)[0]
            for name in (_ACCEPTED, _PROPOSED)
        }
        accepted = [a for a, n in enumerate(histogram) for _ in range(n)]
        wanted = {_ACCEPTED[0]: sum(accepted), _PROPOSED[0]: verified * length}
        if len(accepted) != verified:
            raise inner.error(f"its histogram has {len(accepted)} steps, spec_verify_ct {verified}")
        if max(accepted, default=0) > length:
            raise inner.error(f"a step accepted {max(accepted)} tokens: not all drafted {length}")
        for name, value in wanted.items():
            if sums[name] != value:
                raise inner.error(
                    f"{name} is {sums[name]}, not {value}: not all steps drafted {length} tokens"
                )
        yield steps.Request(
            inner.text("id", numbers=True) if found.get("id") is not None else None,
            steps.count(inner, found, "prompt_tokens") or 0,
            [length] * verified,
            accepted,
            False,
            steps.n_completion(inner, found, "meta_info"),
            _finish_reason(found.get("finish_reason")),
        )


def _finish_reason(given: object) -> str:
    is_length = isinstance(given, dict) and given.get("type") == "length"
    return "length" if is_length else "unknown"


def _check_known(inner: jsonl.Record) -> None:
    known = {"spec_verify_ct", *_ACCEPTED, *_PROPOSED, *_HISTOGRAM, *_NUMBERS}
    for name in inner.fields:
        if name.startswith("spec_") and name not in known:
            raise inner.error(f"unknown field {name}: a log of another version")
    if not any(name in inner.fields for name in _HISTOGRAM):
        raise inner.error(
            f"there is no {_HISTOGRAM[0]}: sums alone do not say how deep drafts are accepted"
        )
    for name in _NUMBERS:
        if name in inner.fields:
            steps.check_number(inner, name)


def _either(inner: jsonl.Record, names: tuple[str, ...]) -> object:
    """A field under the first of its names that is there; others must say the same."""
    there = [name for name in names if name in inner.fields]
    if not there:
        raise inner.error(f"field {names[0]} is missing")
    for name in there[1:]:
        if inner.fields[name] != inner.fields[there[0]]:
            raise inner.error(f"{name} contradicts {there[0]}")
    return inner.fields[there[0]]
