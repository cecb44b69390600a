"""What is found of trees in one thread is read in others: whole, or not at all."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

import traces
from simkit import policies
from simkit.simulator.arguments import setting
from simkit.steps import tree
from simkit.trees import beams

THREADS, ROUNDS = 8, 3
SPECS = [f"eagle2(top_k=4, depth=3, total={total})" for total in (5, 6, 7, 8, 10, 15, 25, 60)]


@pytest.fixture(scope="module")
def trace():
    return traces.load("reference-trees", "eagle-tree")


def fresh(trace):
    return setting(trace, None, "draft").layout


def accepted(policy, layout):
    return tree.FAMILY.walk(policy, layout, 1).accepted


def test_threads_that_look_at_the_same_starts_find_what_one_finds(trace):
    """With totals that differ their steps start elsewhere, so each finds some that others have."""
    rules = [policies.parse(spec) for spec in SPECS]
    alone = [accepted(rule, fresh(trace)) for rule in rules]
    assert len({len(found) for found in alone}) > 3
    for _ in range(ROUNDS):
        layout, together = fresh(trace), Barrier(THREADS)

        def visit(rule, layout=layout, together=together):
            together.wait()
            return accepted(rule, layout)

        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(visit, rules))
        for mine, theirs in zip(found, alone, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    whole = beams.beams_of(fresh(trace), 4)
    for mine, theirs in zip(beams.beams_of(layout, 4), whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("loop", ["_visit", "_fill"])
def test_no_flag_is_shared_outside_of_the_lock(trace, monkeypatch, loop):
    """A loop without a lock has flags of its own; a processor may show those of others too soon."""
    layout, own = fresh(trace), getattr(beams, loop)
    given = []

    def watched(trees, top_k, found, known, *rest):
        _, shared = layout.kept["beams", top_k]
        before = shared.copy()
        out = own(trees, top_k, found, known, *rest)
        given.append((np.shares_memory(known, shared), (shared == before).all(), known.any()))
        return out

    monkeypatch.setattr(beams, loop, watched)
    if loop == "_fill":
        beams.beams_of(layout, 4)
    else:
        accepted(policies.parse(SPECS[3]), layout)
    assert given == [(False, True, True)]
    _, shared = layout.kept["beams", 4]
    assert shared.any()
