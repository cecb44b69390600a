"""Records of acceptance, as vLLM names their fields: compared with themselves, then steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from simkit.importers import jsonl, laws
from simkit.importers.jsonl import LONGEST_DRAFT
from simkit.importers.ledger import hold
from traces.messages import how_many

FIELDS = (
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "acceptance_histogram",
    "num_spec_steps",
    "num_accepted_draft_tokens",
    "num_draft_tokens",
    "num_spec_tokens",
    "per_step_accepted",
    "per_step_drafted",
)


class LoggedSteps(NamedTuple):
    """The steps of a request.

    Attributes:
        drafted: of each step.
        accepted: of each step.
        ordered: whether they stand in their order.
        totals: whether the sums alone are known, which are spread evenly.
    """

    drafted: list[int]
    accepted: list[int]
    ordered: bool
    totals: bool = False

    @property
    def n_emitted(self) -> int:
        """Tokens of the prefill and of all steps."""
        return 1 + sum(self.accepted) + len(self.accepted)


def steps_of(
    record: jsonl.Record,
    name: str,
    fields: Any,
    unknown: set[str],
    known: Collection[str] = FIELDS,
) -> LoggedSteps:
    """The steps of a record of acceptance.

    Where there are sums alone, the steps are known, but not their order, if all drafted as much.

    Args:
        record: for complaints.
        name: of the record's object.
        fields: that object.
        unknown: takes in the names of fields that are not known.
        known: those that are.

    Raises:
        ImporterError: a field is missing or wrong, or contradicts another.
    """
    inner, whole = counts_of(record, name, fields, unknown, known)
    histogram = _histogram(inner)
    ordered = fields.get("per_step_accepted") is not None
    if ordered:
        drafted, accepted = _per_step(inner)
    else:
        drafted, accepted = _from_sums(inner, whole, histogram)
    most = n_drafted_at_most(inner)
    if most is not None:
        deepest = max(drafted, default=0)
        said = f"per_step_drafted is above num_spec_tokens, {most}"
        hold(inner, "length", deepest <= most, said, "rooted")
    found = {
        "num_spec_steps": len(drafted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
    }
    for field, value in found.items():
        said = f"{field} is {whole[field]}, but its steps come to {value}"
        hold(inner, "sums", whole[field] == value, said)
    said = "acceptance_histogram contradicts per_step_accepted"
    hold(inner, "histogram", histogram == Counter(accepted), said)
    dense = fields["acceptance_histogram"]
    if isinstance(dense, list) and most is not None:
        said = f"has {how_many(len(dense), 'entry', 'entries')}, but num_spec_tokens is {most}"
        hold(inner, "histogram", len(dense) == most + 1, f"acceptance_histogram {said}")
    check_means(inner, whole)
    return LoggedSteps(drafted, accepted, ordered)


def counts_of(
    record: jsonl.Record, name: str, fields: Any, unknown: set[str], known: Collection[str]
) -> tuple[jsonl.Record, dict[str, int]]:
    """The object of a record of acceptance, and its sums.

    Raises:
        ImporterError: see `steps_of`, whose arguments these are.
    """
    inner = record.inside(name, fields)
    unknown |= {field for field in fields if field not in known}
    sums = ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
    return inner, {field: inner.count(field) for field in sums}


def evenly(
    record: jsonl.Record, n: int, drafted: int, accepted: int, length: int | None
) -> LoggedSteps:
    """Steps of which the sums alone are known, where all drafted as much.

    Args:
        record: for complaints.
        n: how many.
        drafted: by all.
        accepted: of all.
        length: tokens that each drafted; None: not known.

    Raises:
        ImporterError: they did not, or it is not known.
    """
    if length is None or n < 1 or drafted != n * length or accepted > drafted:
        known = f"not all of its {n} steps drafted {length}" if length else "give --draft-length K"
        raise record.error(
            f"it has sums alone, {drafted:,} drafted and {accepted:,} accepted tokens: what its"
            f" steps drafted is not known: {known}"
        )
    each, more = divmod(accepted, n)
    spread = [each] * (n - more) + [each + 1] * more
    return LoggedSteps([length] * n, spread, False, totals=True)


def check_means(inner: jsonl.Record, whole: Mapping[str, int]) -> None:
    """Refuse a mean or a rate that the sums of a record contradict.

    Raises:
        ImporterError: as said.
    """
    steps, accepted, drafted = whole.values()
    means = (1 + accepted / steps,) if steps else (1.0, 0.0)
    laws.check_agrees(inner, "mean_acceptance_length", *means)
    laws.check_agrees(inner, "draft_acceptance_rate", accepted / drafted if drafted else 0.0)


def n_drafted_at_most(inner: jsonl.Record) -> int | None:
    """The configured length; None where there is none.

    Raises:
        ImporterError: it is no whole number.
    """
    return laws.count(inner, inner.fields, "num_spec_tokens", LONGEST_DRAFT)


def _per_step(inner: jsonl.Record) -> tuple[list[int], list[int]]:
    accepted, drafted = (
        inner.whole(name, inner.get(name), 0, LONGEST_DRAFT)
        for name in ("per_step_accepted", "per_step_drafted")
    )
    same = len(accepted) == len(drafted)
    hold(inner, "sums", same, "per_step_accepted and per_step_drafted differ in length")
    for k, (a, d) in enumerate(zip(accepted, drafted, strict=True)):
        if a > d:
            hold(inner, "length", False, f"per_step_accepted[{k}] is {a}, but {d} were drafted")
    hold(inner, "length", True, "")
    return drafted, accepted


def _from_sums(
    inner: jsonl.Record, whole: dict[str, int], histogram: Mapping[int, int]
) -> tuple[list[int], list[int]]:
    most, steps = n_drafted_at_most(inner), whole["num_spec_steps"]
    if most is None or whole["num_draft_tokens"] != steps * most:
        each, rest = divmod(whole["num_draft_tokens"], max(1, steps))
        rooted = most is not None and each > most and not rest
        said = (
            "it has no per_step_accepted (vLLM's level detailed has), and not all steps drafted as"
            " much: what each of them drafted is not known"
        )
        hold(inner, "length", False, said, "rooted" if rooted else "")
        raise AssertionError
    accepted = [a for a, n in sorted(histogram.items()) for _ in range(n)]
    said = f"acceptance_histogram goes beyond num_spec_tokens, {most}"
    hold(inner, "length", max(accepted, default=0) <= most, said)
    return [most] * len(accepted), accepted


def _histogram(inner: jsonl.Record) -> dict[int, int]:
    """Steps by what they accepted: of a dense list, or of an object with whole numbers as keys."""
    given, name = inner.get("acceptance_histogram"), "acceptance_histogram"
    if isinstance(given, dict):
        if not all(key.isdecimal() and int(key) <= LONGEST_DRAFT for key in given):
            raise inner.error(f"the keys of {name} must be whole numbers up to {LONGEST_DRAFT}")
        counts = inner.whole(name, list(given.values()), 0)
        pairs = zip(map(int, given), counts, strict=True)
    else:
        pairs = enumerate(inner.whole(name, given, 0))
    return {a: steps for a, steps in pairs if steps}
