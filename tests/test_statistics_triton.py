"""The Triton kernel against the plain code in float64.

Runs on a GPU, or anywhere with Triton under TRITON_INTERPRET=1.
"""

import os

import pytest
import torch

from traces.record import statistics, statistics_triton
from traces.record.statistics_triton import (
    draft_statistics,
    pair_statistics,
    raw_statistics,
    target_statistics,
    usable,
)
from traces.sampler import Sampler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, SIZE = 6, 9000


@pytest.fixture
def kernel(monkeypatch):
    """Run the kernel, also in the interpreter."""
    pytest.importorskip("triton")
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or Triton's interpreter")
    monkeypatch.setattr(statistics_triton, "can_run", lambda *_: True)


def random_logits(seed=0):
    g = torch.Generator().manual_seed(seed)
    return [(3 * torch.randn(ROWS, SIZE, generator=g)).to(DEVICE) for _ in range(2)]


def peaks_in_one_lane():
    p, q = random_logits(1)
    q[:, ::4096] += 30  # three of the ten likeliest meet in one lane of a block
    return p, q


def tied_peaks_in_one_lane():
    p, q = (x.clamp(max=3.0) for x in random_logits(2))  # most of the ten likeliest are equal
    for k, height in ((7, 9.0), (7 + 4096, 9.5), (7 + 8192, 9.25)):
        q[:, k] = height
    return p, q


def far_from_the_first_block():
    p, q = random_logits(3)
    q[:, -1] += 60
    p[:, -2] += 50
    return p, q


def all_equal():
    p, _ = random_logits(4)
    return p, torch.zeros_like(p)


def half_precision():
    return [x.bfloat16() for x in random_logits(5)]


CASES = [
    random_logits,
    peaks_in_one_lane,
    tied_peaks_in_one_lane,
    far_from_the_first_block,
    all_equal,
    half_precision,
]


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_columns_are_those_of_float64(kernel, make, temperature):
    p, q = make()
    sampler = Sampler(temperature)
    token = q.float().argmax(-1) if temperature == 0 else torch.arange(ROWS, device=DEVICE)
    exact_p = statistics.target_rows(p.double(), sampler)
    exact_q = statistics.draft_rows(q.double(), sampler)
    exact = statistics.draft_statistics(exact_q, token)
    exact |= statistics.target_statistics(exact_p, exact_q, token)
    got = pair_statistics(
        statistics.target_rows(p, sampler, True), statistics.draft_rows(q, sampler, True), token
    )
    assert got.keys() == exact.keys()
    for name, value in exact.items():
        torch.testing.assert_close(got[name], value, rtol=2e-6, atol=2e-6, msg=name)


def test_three_entry_points_agree_to_the_last_bit(kernel):
    p, q = random_logits()
    p_rows, q_rows = (statistics.LogitRows(x, 1.0, kernel=True) for x in (p, q))
    token = torch.arange(ROWS, device=DEVICE)
    both = pair_statistics(p_rows, q_rows, token)
    parts = draft_statistics(q_rows, token) | target_statistics(p_rows, q_rows, token)
    assert parts.keys() == both.keys()
    for name, value in parts.items():
        assert torch.equal(value, both[name]), name


def test_a_sampler_that_cuts_takes_the_plain_code_for_its_columns(kernel):
    p, q = random_logits()
    sampler = Sampler(0.7, top_k=5)
    token = q.argmax(-1)
    asked = statistics.target_rows(p, sampler, True), statistics.draft_rows(q, sampler, True)
    got = target_statistics(*asked, token)
    plain = statistics.target_statistics(*asked, token)
    torch.testing.assert_close(got["overlap_processed"], plain["overlap_processed"])
    torch.testing.assert_close(got["accept_prob"], plain["accept_prob"])


def test_rows_that_do_not_ask_for_the_kernel_take_the_plain_code(kernel):
    p, q = random_logits()
    token = torch.arange(ROWS, device=DEVICE)
    plain = statistics.draft_statistics(statistics.LogitRows(q, 1.0), token)
    got = draft_statistics(statistics.LogitRows(q, 1.0), token)
    assert all(torch.equal(got[name], value) for name, value in plain.items())


def test_columns_that_are_named_alone_are_those_of_all(kernel):
    _, q = random_logits()
    token = torch.arange(ROWS, device=DEVICE)
    rows = statistics.LogitRows(q, 1.0, kernel=True)
    every = draft_statistics(rows, token)
    some = draft_statistics(rows, token, ["draft_entropy"])
    assert list(some) == ["draft_entropy"]
    assert torch.equal(some["draft_entropy"], every["draft_entropy"])


def test_likeliest_ids_are_the_lowest_of_several(kernel):
    p, q = all_equal()
    p[:, 17] = p[:, 4500] = p.max() + 1
    raw = raw_statistics(p, q, torch.zeros(ROWS, dtype=torch.long, device=DEVICE))
    assert raw.draft_best.tolist() == [0] * ROWS
    assert raw.target_best.tolist() == [17] * ROWS


def test_no_rows(kernel):
    p, q = random_logits()
    none = torch.zeros(0, dtype=torch.long, device=DEVICE)
    raw = raw_statistics(p[:0], q[:0], none)
    assert all(len(column) == 0 for column in raw.floats.values())


def test_where_the_kernel_cannot_run_the_plain_code_does():
    p, q = (x[:, :100].cpu() for x in random_logits())
    p_rows, q_rows = (statistics.LogitRows(x, 1.0, kernel=True) for x in (p, q))
    token = torch.arange(ROWS)
    assert not usable(q_rows)
    plain = statistics.draft_statistics(q_rows, token)
    plain |= statistics.target_statistics(p_rows, q_rows, token)
    got = pair_statistics(p_rows, q_rows, token)
    assert all(torch.equal(got[name], value) for name, value in plain.items())
