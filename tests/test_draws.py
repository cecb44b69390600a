"""The keyed draws: pinned to splitmix64 in plain integers, and right in distribution."""

import pytest
import torch
from scipy import stats

from traces.record import draws

M = (1 << 64) - 1


def mix(x: int) -> int:
    x &= M
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M
    return x ^ (x >> 31)


GOLDEN = 0x9E3779B97F4A7C15


def test_hash_is_splitmix_in_integers():
    seed, sequence, token = 7, 3, 41
    key = mix(mix(seed * GOLDEN) + mix(sequence))
    got = draws.first_key(seed, torch.tensor([sequence]))
    assert int(got) & M == key
    key = mix(key * 3 + mix(token + GOLDEN))
    got = draws.next_key(got, torch.tensor([token]))
    assert int(got) & M == key
    v = ((mix(key ^ mix(draws.ACCEPT << 40)) >> 11) + 0.5) * 2.0**-53
    assert float(draws.uniform(got)) == v


def test_a_key_knows_the_tokens_and_their_order():
    key = draws.first_key(0, torch.tensor([0, 0, 0, 1]))
    for tokens in ([1, 1, 2, 1], [2, 3, 1, 2]):
        key = draws.next_key(key, torch.tensor(tokens))
    assert len(set(key.tolist())) == 4


def test_streams_are_uniform_and_unrelated():
    key = draws.first_key(1, torch.arange(400))
    a, b = (draws.uniforms(key, s, 50).flatten() for s in (draws.DRAFT, draws.CORRECTION))
    assert stats.kstest(a.numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(b.numpy(), "uniform").pvalue > 1e-3
    assert abs(stats.pearsonr(a.numpy(), b.numpy()).statistic) < 4 / len(a) ** 0.5
    v = draws.uniform(draws.first_key(1, torch.arange(20_000)))
    assert stats.kstest(v.numpy(), "uniform").pvalue > 1e-3


def test_race_samples_its_weights():
    weights = torch.tensor([0.5, 0.0, 0.3, 0.2]).double()
    key = draws.first_key(2, torch.arange(20_000))
    drawn = draws.race(weights.expand(len(key), -1), key, draws.DRAFT)
    counts = torch.bincount(drawn, minlength=4).numpy()
    assert counts[1] == 0
    expected = weights.numpy()[[0, 2, 3]] * len(key)
    assert stats.chisquare(counts[[0, 2, 3]], expected).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1, 5, 300, 5000])
def test_the_host_s_winner_is_that_of_all_logarithms(size, dtype):
    g = torch.Generator().manual_seed(size)
    key = torch.randint(-(2**63), 2**63 - 1, (200,), generator=g)
    weights = torch.randn(200, size, generator=g).mul(3).exp().to(dtype)
    weights[:, ::3] *= torch.rand(200, 1, generator=g) < 0.5  # some have none there
    weights[0] = 0
    weights[1] = 1e-30
    ids = torch.randperm(9 * size, generator=g)[:size]
    for some in (None, ids):
        plain = draws.winner(weights, draws.uniforms(key, draws.DRAFT, size, some))
        assert torch.equal(draws.race(weights, key, draws.DRAFT, some), plain)
    square = draws.race(weights.view(20, 10, size), key.view(20, 10), draws.CORRECTION)
    assert torch.equal(square.flatten(), draws.race(weights, key, draws.CORRECTION))
    one = draws.race(weights[2], key[2], draws.DRAFT)
    assert one.shape == () and one == draws.race(weights, key, draws.DRAFT)[2]


def test_race_is_steady_when_weights_move_in_the_last_bits():
    weights = torch.rand(2_000, 50, generator=torch.Generator().manual_seed(0)).double()
    key = draws.first_key(3, torch.arange(2_000))
    nudged = weights * (1 + 1e-12 * torch.randn(weights.shape).double())
    same = draws.race(weights, key, draws.DRAFT) == draws.race(nudged, key, draws.DRAFT)
    assert bool(same.all())


def test_the_host_s_uniforms_are_those_of_other_devices():
    """The compiled loop gives what torch's own operations give, bit by bit."""
    key = torch.randint(-(2**63), 2**63 - 1, (37,), generator=torch.Generator().manual_seed(1))
    for vocab_size in (1, 7, 4096):
        for stream in (draws.DRAFT, draws.CORRECTION):
            found = draws.uniforms(key, stream, vocab_size)
            plain = draws._uniform(key[:, None], stream, torch.arange(vocab_size))
            assert torch.equal(found, plain)
    assert draws.uniforms(key[0], draws.DRAFT, 5).shape == (5,)
    assert draws.uniforms(key.view(37, 1), draws.DRAFT, 5).shape == (37, 1, 5)
