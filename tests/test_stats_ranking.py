"""The area under the ROC curve, against scikit-learn's and where it is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from analysis.stats import StatsError, ranking


@given(st.integers(0, 10_000), st.integers(2, 9), st.sampled_from([1, 3, 100]))
def test_is_that_of_scikit_learn(seed, prompts, values):
    """Ties and all; fewer scores than bins, so that nothing is rounded."""
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(rng.integers(0, 30, prompts)))
    score = rng.integers(0, values, offsets[-1]) / values
    accepted = rng.random(offsets[-1]) < 0.3 + 0.5 * score
    found = ranking.auc(score, accepted, offsets)
    if accepted.all() or not accepted.any():
        assert found.value is None and found.note
    else:
        assert found.value == pytest.approx(roc_auc_score(accepted, score))
        assert found.lo is None or 0 <= found.lo <= found.value <= found.hi <= 1


def test_bins_move_it_little():
    rng = np.random.default_rng(0)
    score = rng.random(20_000)
    accepted = rng.random(20_000) < score
    offsets = np.arange(0, 20_001, 200)
    found = ranking.auc(score, accepted, offsets)
    assert found.value == pytest.approx(roc_auc_score(accepted, score), abs=1e-3)
    assert found.value == pytest.approx(5 / 6, abs=0.01)  # uniform scores that are true
    assert ranking.auc(-score, accepted, offsets).value == pytest.approx(1 - found.value, abs=2e-3)


def test_interval_covers():
    """A score of normal laws one standard deviation apart: Φ(1 / √2) = 0.7602."""
    held = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        accepted = rng.random(30 * 20) < 0.6
        found = ranking.auc(rng.normal(accepted), accepted, np.arange(0, 601, 20), seed=seed)
        held += found.lo <= 0.7602 <= found.hi
    assert held / 80 >= 0.88


def test_what_is_refused():
    offsets = np.array([0, 2])
    with pytest.raises(StatsError, match="row 1"):
        ranking.auc(np.array([0.5, np.nan]), np.array([True, False]), offsets)
    assert ranking.auc(np.empty(0), np.empty(0, bool), np.array([0])).value is None
