"""Rows of drafters with a reduced vocabulary: those of the whole one, where all else is -inf."""

from dataclasses import replace

import pytest
import torch

from traces import load
from traces.record.drafters.coupling import COLUMNS, Coupled
from traces.record.drafters.texts import make_texts
from traces.sampler import Sampler

V, D, T_MAX, EOS = 50, 12, 8, 3
PROMPTS, OUTPUTS = [[1, 2, 3], [4]], [[5, 9, 31, 7, 12, 2], [8, EOS]]
SAMPLERS = {
    "greedy": Sampler(),
    "t1": Sampler(temperature=1.0),
    "warm": Sampler(temperature=1.3),
    "cut": Sampler(temperature=1.0, top_k=9, top_p=0.9),
    "certain": Sampler(temperature=1.0, draft_temperature=0.0),
}


def drawn(seed: int, n_ids: int):
    """The target's logits, a drafter's of all ids and its columns, and these; close to each other.

    Some columns of the output's tokens are there, some are not.
    """
    g = torch.Generator().manual_seed(seed)
    texts = make_texts(PROMPTS, OUTPUTS)
    p = 2 * torch.randn(2, 1 + max(map(len, OUTPUTS)), V, generator=g)
    ids = torch.randperm(V, generator=g)[:n_ids].sort().values
    starts = torch.tensor([(b, i + 1) for b, out in enumerate(OUTPUTS) for i in range(len(out))])
    sequence, start = starts.unbind(1)
    at = (start[:, None] + torch.arange(3) - 1).clamp_max(p.shape[1] - 1)
    q = p[sequence[:, None], at] + torch.randn(len(start), 3, V, generator=g)
    outside = torch.ones(V, dtype=torch.bool).index_fill(0, ids, False)
    return texts, p, q.masked_fill(outside, -torch.inf), ids, sequence, start


def followed(texts, p, sampler, q, sequence, start, ids=None, kept=COLUMNS):
    known = {"sampler": sampler, "seed": 11, "max_new_tokens": T_MAX, "eos_token_ids": (EOS,)}
    header = replace(load("reference").manifest, kind="lattice", lattice_columns=kept, **known)
    coupled = Coupled(texts, p, header, 4, ids)
    coupled.follow(sequence, start, q)
    return coupled.rows


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", SAMPLERS)
def test_rows_are_those_of_all_ids(name, seed):
    texts, p, q, ids, sequence, start = drawn(seed, D)
    every = followed(texts, p, SAMPLERS[name], q, sequence, start)
    few = followed(texts, p, SAMPLERS[name], q[..., ids], sequence, start, ids)
    assert len(every) == len(few) == 3
    for whole, row in zip(every, few, strict=True):
        assert whole.keys() == row.keys() == {"sequence", "start", "depth", "accepted", *COLUMNS}
        for key, value in whole.items():
            if value.is_floating_point():
                close = {"rtol": 2e-6, "atol": 2e-7, "equal_nan": True}
                torch.testing.assert_close(row[key], value, **close, msg=key)
            else:
                assert torch.equal(row[key], value), key


def test_some_are_accepted_and_some_outputs_cannot_be_proposed():
    texts, p, q, ids, sequence, start = drawn(0, D)
    outputs = {token for output in OUTPUTS for token in output}
    assert outputs & set(ids.tolist()) and outputs - set(ids.tolist())
    rows = followed(texts, p, SAMPLERS["t1"], q[..., ids], sequence, start, ids)
    accepted = torch.cat([row["accepted"] for row in rows])
    assert 0 < int(accepted.sum()) < len(accepted)
    assert set(torch.cat([row["draft_token"] for row in rows]).tolist()) <= set(ids.tolist())


def test_what_is_not_kept_is_not_there():
    texts, p, q, ids, sequence, start = drawn(1, D)
    kept = ("draft_token", "draft_entropy", "target_prob")
    rows = followed(texts, p, SAMPLERS["t1"], q[..., ids], sequence, start, ids, kept)
    every = followed(texts, p, SAMPLERS["t1"], q[..., ids], sequence, start, ids)
    for row, whole in zip(rows, every, strict=True):
        assert row.keys() == {"sequence", "start", "depth", "accepted", *kept}
        for key, value in row.items():
            torch.testing.assert_close(value, whole[key], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_verdicts_do_not_contradict_outputs_that_the_target_would_not_give(name, reduced):
    """An engine may have given what greedy decoding, top-k or top-p exclude."""
    kinds = set()
    for seed in range(20):
        texts, p, q, ids, sequence, start = drawn(seed, D)
        q = q + (8 * torch.randn(q.shape, generator=torch.Generator().manual_seed(seed)))
        given = (q[..., ids], sequence, start, ids) if reduced else (q, sequence, start)
        for row in followed(texts, p, SAMPLERS[name], *given):
            chance, accepted = row["accept_prob"], row["accepted"]
            known = ~chance.isnan()
            assert bool((chance[known & accepted] > 0).all())
            assert bool((chance[known & ~accepted] < 1).all())
            kinds |= set(accepted[known].tolist())
    assert kinds == {False, True}
