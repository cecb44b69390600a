"""What must hold between the numbers of an engine's log, whichever engine wrote it.

The prefill emits a token, and each step its accepted tokens and one of the target's own. An output
ends inside its last step: at an EOS token, a word to stop at, or a budget. Means and rates follow
from the counts, up to the digits that were printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from simkit.importers import jsonl
from simkit.importers.ledger import hold
from traces.messages import how_many

MOST_PROMPT = 2**24  # tokens
_FEWEST_DIGITS = 1  # behind the point: a mean or a rate with none of them says too little
_RELATIVE = 1e-6  # of a mean: what 32-bit numbers lose


def check_completion(
    record: jsonl.Record,
    inside: str,
    n_completion: int,
    accepted: Sequence[int],
    ordered: bool,
    uncounted: int | None = None,
) -> None:
    """Refuse an output that is shorter or longer than its steps can have emitted.

    Args:
        record: for complaints.
        inside: the object that has it; empty: the record itself.
        n_completion: tokens of the output.
        accepted: of each step.
        ordered: whether the steps stand in their order; else any of them may be the last.
        uncounted: the most tokens that may come from steps that are not in the log; None: any.

    Raises:
        ImporterError: as said.
    """
    emitted = 1 + sum(accepted) + len(accepted)
    last = 1 + (accepted[-1] if ordered and accepted else max(accepted, default=0))
    name = f"{inside}.completion_tokens".removeprefix(".")
    steps = f"{how_many(len(accepted), 'step')} emit {emitted:,} with the prefill's"
    given = f"{name} is {how_many(n_completion, 'token')}, but its {steps}"
    most = f", {last} in the last" if ordered else f", at most {last} in the last"
    short = f"{given}{most if accepted else ''}: an output ends inside its last step"
    each = len(accepted) > 1
    fault = "one_more_a_step" if each and n_completion == emitted - len(accepted) else ""
    hold(record, "output", n_completion > emitted - last, short, fault)
    if uncounted is not None:
        more, some = n_completion - emitted, sum(a > 0 for a in accepted)
        fault = "one_fewer_a_step" if each and max(1, some) <= more <= len(accepted) else ""
        hold(record, "output", more <= uncounted, given, fault)


def check_agrees(record: jsonl.Record, name: str, *expected: float) -> None:
    """Refuse a mean or a rate that none of some values rounds to, in the digits that it has.

    Args:
        record: that has it.
        name: of the field.
        expected: what the counts give; more than one where releases differ.

    Raises:
        ImporterError: as said, or it is missing or no finite number.
    """
    value = number(record, name)
    digits = -int(Decimal(repr(value)).as_tuple().exponent)
    half = 0.5 * 10.0 ** -max(digits, _FEWEST_DIGITS)
    agrees = any(abs(value - x) <= half + _RELATIVE * abs(x) for x in expected)
    words = " or ".join(f"{x:.6g}" for x in dict.fromkeys(expected))
    hold(record, "means", agrees, f"{name} is {value:g}, but its counts give {words}")


def number(record: jsonl.Record, name: str) -> float:
    """A field that is a finite number.

    Raises:
        ImporterError: it is none, or missing.
    """
    value = record.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and abs(value) <= sys.float_info.max):  # a whole number may be beyond floats
        raise record.error(f"{name} must be a finite number, not {value!r:.40}")
    return float(value)


def count(record: jsonl.Record, where: Any, name: str, most: int = MOST_PROMPT) -> int | None:
    """A whole number of tokens in an object that may lack it; None then.

    Raises:
        ImporterError: it is there, and is none.
    """
    if not isinstance(where, dict) or where.get(name) is None:
        return None
    return record.whole(name, [where[name]], 0, most)[0]


def usage(record: jsonl.Record, where: Any, inside: str) -> tuple[int, int]:
    """Tokens of the prompt, 0 if they are not known, and of the output.

    Raises:
        ImporterError: those of the output are missing, or one is no whole number, or their sum is
            not the total.
    """
    prompt = count(record, where, "prompt_tokens") or 0
    found = count(record, where, "completion_tokens")
    if found is None:
        name = f"{inside}.completion_tokens".removeprefix(".")
        raise record.error(f"{name} is missing: where the output ends")
    total = count(record, where, "total_tokens", 2 * MOST_PROMPT)
    if total is not None and where.get("prompt_tokens") is not None:
        said = f"{inside}.total_tokens is {total}, not {prompt} + {found}"
        hold(record, "total", total == prompt + found, said)
    return prompt, found
