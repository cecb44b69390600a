"""A cut of the golden hashes: what is computed today is what was computed when they were kept."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import golden
from traces.errors import UserError

RULES = ("fixed", "svip", "pearl", "pacer", "heuristic", "prophet")
FIGURES = ("confidence_acceptance", "draft_lengths", "pearl_window", "tree_budget")
CLAIMS = ("entropy_ratio", "lengths_vary", "later_positions_fall", "faster_than_constant")


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("replay", lambda: golden.replays(["reference"], RULES)),
        ("serving", lambda: golden.served(("static(4)", "goodput(6)", "each(svip(h=0.4))"))),
        ("figures", lambda: golden.figures(FIGURES)),
        ("claims", lambda: golden.claims(CLAIMS)),
    ],
)
def test_a_cut_is_as_it_was(section, found):
    known = golden.read()[section]
    now = dict(found())
    assert now
    apart = {name: (known.get(name), new) for name, new in now.items()}
    assert not [
        name
        for name, (before, new) in apart.items()
        if before is None or golden.numbers(before) != golden.numbers(new)
    ], "if the change is meant: python -m benchmarks.golden --write, and say why"


def test_a_number_that_moves_shows():
    whole = {"steps": np.arange(4), "seconds": np.array([1.0, 2.5, np.nan, np.inf])}
    before = golden.of_columns([whole])
    for name, value in (("steps", np.array([0, 1, 2, 4])), ("seconds", whole["seconds"][::-1])):
        assert golden.numbers(golden.of_columns([whole | {name: value}])) != golden.numbers(before)
    last_bit = whole["seconds"] * (1 + 2e-16)
    after = golden.of_columns([whole | {"seconds": last_bit}])
    assert after != before and golden.numbers(after) == golden.numbers(before)


def test_a_refusal_is_an_entry_and_differences_are_named():
    def refused():
        raise UserError("no")

    assert golden.entry(refused) == "UserError -"
    lines = list(golden.differences({"a": "1 1", "b": "1 1", "c": "1 1"}, {"a": "2 1", "b": "1 2"}))
    assert [line.split(":")[0] for line in lines] == ["numbers differ", "bits differ", "gone"]
