"""Estimates in a figure's frame, in its notes and in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from analysis.stats import Estimate

Value = str | float | bool | None
Row = dict[str, Value]


def cells(found: Estimate, name: str = "value") -> Row:
    """An estimate as entries of a row: NAME, NAME_lo, NAME_hi, NAME_n (prompts)."""
    ends = {"": found.value, "_lo": found.lo, "_hi": found.hi, "_n": found.n_prompts}
    return {f"{name}{end}": value for end, value in ends.items()}


def frame(rows: Iterable[Mapping[str, Value]]) -> pl.DataFrame:
    """Rows as a frame; what a row lacks is null."""
    return pl.DataFrame(list(rows), infer_schema_length=None)


def missing(found: Iterable[Estimate], of: Iterable[object] | None = None) -> list[str]:
    """What to say of estimates without an interval, or with a weak one, each reason once.

    Args:
        found: the estimates.
        of: what each is of; then the reason names them.
    """
    reasons: dict[str, list[str]] = {}
    found = list(found)
    for name, e in zip(of or [""] * len(found), found, strict=True):
        if e.note:
            reasons.setdefault(e.note, []).append(str(name))
    said = []
    for note, names in reasons.items():
        names = list(dict.fromkeys(name for name in names if name))
        shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        said.append(f"{shown}: {note}." if shown else f"No interval, or a weak one: {note}.")
    return said


def text(e: Estimate, form: str = ".3f") -> str:
    """An estimate in words: 1.234 [1.1, 1.3]."""
    return e.text(form, f" ({e.note})", f"not defined ({e.note})")
