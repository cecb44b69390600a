"""Columns of a (p, q) pair: laws that hold for any pair, and other programs as judges."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from traces import schema
from traces.record import draws, sums
from traces.record.statistics import (
    LogitRows,
    draft_rows,
    draft_statistics,
    outcome,
    target_rows,
    target_statistics,
)
from traces.sampler import Sampler

T1 = Sampler(1.0)
LOGITS = arrays(np.float64, (3, 12), elements=st.floats(-30, 30, width=32))


def columns(p_logits, q_logits, sampler=T1, token=0):
    p = target_rows(torch.tensor(p_logits), sampler)
    q = draft_rows(torch.tensor(q_logits), sampler)
    token = torch.full((len(p_logits),), token)
    out = draft_statistics(q, token) | target_statistics(p, q, token)
    return {k: v.double().numpy() for k, v in out.items()}


@given(LOGITS, LOGITS)
@settings(max_examples=200, deadline=None)
def test_entropies_overlap_and_bounds(p_logits, q_logits):
    c = columns(p_logits, q_logits)
    p, q = (np.exp(x - x.max(1, keepdims=True)) for x in (p_logits, q_logits))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    np.testing.assert_allclose(c["draft_entropy"], stats.entropy(q, axis=1), atol=1e-5)
    np.testing.assert_allclose(c["target_entropy"], stats.entropy(p, axis=1), atol=1e-5)
    kl = c["cross_entropy"] - c["draft_entropy"]
    np.testing.assert_allclose(kl, stats.entropy(q, p, axis=1), atol=1e-4)
    tvd = abs(p - q).sum(1) / 2
    np.testing.assert_allclose(c["overlap"], 1 - tvd, atol=1e-6)
    slack = 1e-5
    kl = np.maximum(stats.entropy(q, p, axis=1), 0)
    assert (c["overlap"] >= 1 - np.sqrt(kl / 2) - slack).all()  # Pinsker
    assert (c["overlap"] >= 1 - np.sqrt(1 - np.exp(-kl)) - slack).all()  # Bretagnolle-Huber
    assert (c["cross_entropy"] >= c["draft_entropy"] - 1e-4).all()  # Gibbs
    assert (c["draft_entropy"] <= np.log(12) + slack).all()


@given(LOGITS, LOGITS, st.sampled_from([(1.0, 0, 1.0), (0.7, 0, 0.9), (2.0, 5, 1.0)]))
@settings(max_examples=100, deadline=None)
def test_accept_prob_has_the_overlap_as_its_mean(p_logits, q_logits, setting):
    sampler = Sampler(*setting)
    q = draft_rows(torch.tensor(q_logits), sampler).processed.numpy()
    per_token = [columns(p_logits, q_logits, sampler, token=k) for k in range(12)]
    with np.errstate(invalid="ignore"):
        mean = sum(
            np.where(q[:, k] > 0, q[:, k] * c["accept_prob"], 0) for k, c in enumerate(per_token)
        )
    np.testing.assert_allclose(mean, per_token[0]["overlap_processed"], atol=1e-5)


@given(LOGITS)
@settings(max_examples=50, deadline=None)
def test_equal_models_accept_everything(logits):
    c = columns(logits, logits, token=int(logits[0].argmax()))
    np.testing.assert_allclose(c["accept_prob"][0], 1, atol=1e-6)
    np.testing.assert_allclose(c["overlap"], 1, atol=1e-6)


@given(LOGITS, LOGITS)
@settings(max_examples=50, deadline=None)
def test_all_columns_are_probabilities_or_nats(p_logits, q_logits):
    c = columns(p_logits, q_logits)
    assert set(c) == {*schema.DRAFT_STATISTICS, *schema.TARGET_STATISTICS}
    for name, value in c.items():
        assert np.isfinite(value).all() and (value >= 0).all()
        assert name.endswith("entropy") or (value <= 1).all()
    assert (c["draft_top1_prob"] >= c["draft_top2_prob"]).all()
    top2 = c["draft_top1_prob"] + c["draft_top2_prob"]
    assert (c["draft_top10_mass"] >= top2 - 1e-6).all()


@pytest.mark.parametrize("setting", [(0.7, 0, 0.9), (1.0, 5, 1.0), (1.3, 8, 0.5), (1.0, 0, 0.05)])
def test_processed_is_what_hugging_face_samples_from(setting):
    temperature, top_k, top_p = setting
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(1)).double() * 3
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    theirs = warpers(None, logits).softmax(-1)
    ours = LogitRows(logits, temperature, top_k, top_p).processed
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "sampler", [Sampler(1.0), Sampler(0.7, 0, 0.9), Sampler(1.0, draft_temperature=0)]
)
def test_outcome_samples_the_target(sampler):
    """The speculative-sampling theorem: whatever q, the output has law p."""
    n, v = 40_000, 6
    g = torch.Generator().manual_seed(4)
    p_logits, q_logits = (torch.randn(1, v, generator=g).double() * 1.5 for _ in range(2))
    p = target_rows(p_logits.expand(n, -1), sampler)
    q = draft_rows(q_logits.expand(n, -1), sampler)
    key = draws.first_key(5, torch.arange(n))
    token = q.best if q.temperature == 0 else draws.race(q.processed, key, draws.DRAFT)
    drawn = outcome(p, q, token, key)
    counts = torch.bincount(drawn.target_token, minlength=v).numpy()
    expected = p.processed[0].numpy() * n
    there = expected > 0
    assert counts[~there].sum() == 0
    assert stats.chisquare(counts[there], expected[there]).pvalue > 1e-3
    overlap = float(target_statistics(p, q, token)["overlap_processed"][0])
    accepted = int(drawn.accepted.sum())
    assert stats.binomtest(accepted, n, overlap).pvalue > 1e-3


def test_greedy_ties_go_to_the_lowest_id():
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0]])
    p, q = target_rows(logits, Sampler()), draft_rows(logits.flip(1), Sampler())
    drawn = outcome(p, q, q.best, torch.tensor([0]))
    assert (int(p.best), int(q.best), bool(drawn.accepted)) == (1, 1, True)


def test_bfloat16_logits_are_reduced_in_float32():
    logits = torch.randn(20, 5_000, generator=torch.Generator().manual_seed(2)).bfloat16()
    exact = LogitRows(logits.double(), 1.0).entropy
    torch.testing.assert_close(LogitRows(logits, 1.0).entropy, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1, 9, 64, 320, 1000, 1024])
def test_sums_and_the_largest_are_torch_s(size, dtype):
    a = torch.randn(7, size, dtype=dtype, generator=torch.Generator().manual_seed(size)).exp()
    b = a.flip(0).log()
    a[:, ::3] = a[:, :1].clone()  # several are equal
    exact = {"rtol": 1e-13, "atol": 1e-13}
    products = (a * b).sum(-1, dtype=torch.float64)
    torch.testing.assert_close(sums.of_products(a, b), products, **exact)
    least = torch.minimum(a, b).sum(-1, dtype=torch.float64)
    torch.testing.assert_close(sums.of_least(a, b), least, **exact)
    assert torch.equal(sums.largest(a, 10), a.topk(min(10, size), -1).values)
    assert torch.equal(
        sums.of_products(a[:, ::2], b[:, ::2]),
        sums.of_products(a[:, ::2].contiguous(), b[:, ::2].contiguous()),
    )


def test_the_lowest_of_several_likeliest_ids_is_taken():
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0], [3.0, -torch.inf, 3.0, 0.0]])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert LogitRows(logits.to(dtype), 0.0).best.tolist() == [1, 0]


@given(arrays(np.float32, (3, 64), elements=st.floats(-300, 300, width=32)))
@settings(deadline=None)
def test_the_compiled_deviation_is_torchs(values):
    rows = torch.from_numpy(values)
    expected = rows.double().std(-1).float()
    torch.testing.assert_close(sums.deviation(rows), expected, rtol=1e-5, atol=1e-4)
