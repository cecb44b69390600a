"""h(k) of the acceptance-head paper."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkit.costs import CostError, Linear, rejection_threshold

SECONDS = st.floats(0, 1)


def test_in_numbers():
    """Equation 12: T_v = 10 + 2 (k + 1), T_d(k) = 3 k, T_r = 6 + T_v."""
    times = Linear(draft_s=3.0, target_s=10.0, target_per_token_s=2.0, resample_s=6.0)
    h = rejection_threshold(times, 7, 3)
    assert h.dtype == np.float64
    assert h.tolist() == pytest.approx([(14 - 3) / 20, (16 - 6) / 22, (18 - 9) / 24])


def test_context_counts_and_keeps_its_shape():
    times = Linear(draft_s=1.0, target_s=10.0, draft_per_kv_token_s=0.5)
    h = rejection_threshold(times, np.array([[0, 4]]), 2)
    assert h.shape == (1, 2, 2)
    # Draft passes of 1 and 1.5 s behind no tokens, of 3 and 3.5 s behind four.
    assert h[0].tolist() == [[0.9, 0.75], [0.7, 0.35]]


def test_it_is_negative_where_the_draft_takes_longer_than_the_verification():
    h = rejection_threshold(Linear(draft_s=1.0, target_s=2.5), 0, 4)
    assert h.tolist() == pytest.approx([0.6, 0.2, -0.2, -0.6])


@given(draft_s=SECONDS, target_s=st.floats(0.01, 1), per_token_s=SECONDS, resample_s=SECONDS)
def test_equation_11(draft_s, target_s, per_token_s, resample_s):
    """P_rej < h is T_d(k) + P_rej T_r < T_v."""
    times = Linear(
        draft_s=draft_s, target_s=target_s, target_per_token_s=per_token_s, resample_s=resample_s
    )
    h = rejection_threshold(times, 5, 6)
    k = np.arange(1, 7)
    verify_s = target_s + per_token_s * (k + 1)
    assert k * draft_s + h * (resample_s + verify_s) == pytest.approx(verify_s)
    assert np.all(h <= 1)
    if draft_s >= per_token_s:
        assert np.all(np.diff(h) <= 1e-12)


def test_refused_times():
    with pytest.raises(CostError, match="a cost where verification takes time"):
        rejection_threshold(Linear(draft_s=1.0, target_s=0.0), 5, 6)

    class Broken(Linear):
        def resample(self):
            return float("nan")

    with pytest.raises(CostError, match="needs times >= 0"):
        rejection_threshold(Broken(draft_s=1.0, target_s=1.0), 5, 6)
