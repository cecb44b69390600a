"""The PACER head's packed pass against one draft at a time, and against the paper's mask."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from simkit.heads.pacer import ATTENTION, TEXT_POSITION, PacerHead, Turn

WIDTH, TEXT, OFF = 64, 9, 12  # two heads of attention


def head_of(attention="full", position_embedding=True, block=3, seed=0, text_position="none"):
    torch.manual_seed(seed)
    head = PacerHead(WIDTH, 7, position_embedding, attention, block, text_position).double()
    for weight in head.parameters():  # far from where training starts
        torch.nn.init.normal_(weight, std=0.2)
    return head


def turned(x, place):
    """Each pair (x_i, x_{i + d/2}) as a complex number, times exp(i place / 10000^(2i/d))."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half], x[..., half:])
    angle = torch.outer(place.double(), 10000.0 ** -(torch.arange(half).double() / half))
    pairs = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([pairs.real, pairs.imag], -1)


def layer(head, x, sees, place):
    """The layer over rows x (n, H) at places (n,) under a mask (n, n), written out; logits (n,)."""
    q, k, v = head.project(x).unflatten(-1, (3, head.n_heads, -1)).permute(1, 2, 0, 3)
    if head.turn is not None:
        q, k = turned(q, place), turned(k, place)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=sees)
    x = x + head.merge(mixed.transpose(0, 1).flatten(1))
    x = x + head.down(functional.silu(head.up(head.norm_mlp(x))))
    return head.out(head.norm_out(x))[:, 0]


def sees_own(head, query, key):
    """Whether a draft's token at depth `query` attends to its token at depth `key`, from 0."""
    same_block = query // head.block == key // head.block
    return key <= query and (head.attention != "local-block" or same_block)


def alone(head, rows, index, n_prefix):
    """One draft in a sequence of its own; logits of its tokens."""
    prefix = int(n_prefix) if head.attention == "full" else 0
    x = head.norm(torch.cat([rows[:prefix], rows[index]]))
    if head.depth is not None:
        x = torch.cat([x[:prefix], x[prefix:] + head.depth.weight[: len(index)]])
    sees = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    for a in range(len(index)):
        for b in range(len(index)):
            sees[prefix + a, prefix + b] = sees_own(head, a, b)
    place = torch.cat([torch.arange(prefix), n_prefix + torch.arange(len(index))])
    return layer(head, x, sees, place)[prefix:]


def packed(head, rows, index, n_prefix):
    """All drafts behind the text in one sequence, under the mask of the paper's appendix D."""
    n_drafts, deep = index.shape
    depth = head.depth.weight[:deep] if head.depth is not None else torch.zeros(deep, WIDTH)
    drafted = head.norm(rows[index]) + depth
    x = torch.cat([head.norm(rows[:TEXT]), drafted.flatten(0, 1)])
    sees = torch.zeros(len(x), len(x), dtype=torch.bool)
    sees[:TEXT, :TEXT] = torch.ones(TEXT, TEXT).tril().bool()
    for s in range(n_drafts):
        for a in range(deep):
            row = TEXT + s * deep + a
            sees[row, : n_prefix[s]] = head.attention == "full"
            for b in range(deep):
                sees[row, TEXT + s * deep + b] = sees_own(head, a, b)
    place = [torch.arange(TEXT), (n_prefix[:, None] + torch.arange(deep)).flatten()]
    return layer(head, x, sees, torch.cat(place))[TEXT:].unflatten(0, (n_drafts, deep))


def some_drafts(seed, n_drafts=5, deep=7):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(TEXT + OFF, WIDTH)))
    index = torch.from_numpy(rng.integers(0, TEXT + OFF, (n_drafts, deep)))
    n_prefix = torch.from_numpy(rng.integers(0, TEXT + 1, n_drafts))
    return rows, index, n_prefix


@pytest.mark.parametrize("position_embedding", [True, False])
@pytest.mark.parametrize("text_position", TEXT_POSITION)
@pytest.mark.parametrize("attention", ATTENTION)
def test_packed_is_one_draft_at_a_time(attention, text_position, position_embedding):
    head = head_of(attention, position_embedding, text_position=text_position)
    rows, index, n_prefix = some_drafts(0)
    found = head(rows, index, n_prefix)
    for draft in range(len(index)):
        expected = alone(head, rows, index[draft], n_prefix[draft])
        torch.testing.assert_close(found[draft], expected, rtol=1e-9, atol=1e-9)
    expected = packed(head, rows, index, n_prefix)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("text_position", TEXT_POSITION)
@pytest.mark.parametrize("attention", ATTENTION)
def test_gradients_are_those_of_the_packed_sequence(attention, text_position):
    head = head_of(attention, text_position=text_position)
    rows, index, n_prefix = some_drafts(1)
    weights = [p for name, p in head.named_parameters()]
    gradients = [
        torch.autograd.grad(f(rows, index, n_prefix).square().sum(), weights)
        for f in (head, lambda *drafts: packed(head, *drafts))
    ]
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), deep=st.integers(1, 6))
def test_a_token_sees_nothing_behind_it(seed, deep):
    """Its score is the same whatever the draft goes on with, and whatever text follows."""
    head = head_of()
    rows, index, n_prefix = some_drafts(seed)
    whole = head(rows, index, n_prefix)
    torch.testing.assert_close(head(rows, index[:, :deep], n_prefix), whole[:, :deep])
    one = index[:1].clone()
    last = int(n_prefix[0])
    changed = rows.clone()
    outside = [r for r in range(last, len(rows)) if r not in set(one[0].tolist())]
    changed[outside] += 1
    torch.testing.assert_close(head(changed, one, n_prefix[:1]), whole[:1])


def test_depth_counts_only_with_its_embedding():
    """The same state at another depth scores otherwise, unless position embeddings are off."""
    rows = torch.ones(4, WIDTH, dtype=torch.float64).cumsum(-1)
    index, n_prefix = torch.full((1, 5), 3), torch.tensor([2])
    on, off = (head_of(position_embedding=p)(rows, index, n_prefix)[0] for p in (True, False))
    assert not torch.allclose(on[0], on[4])
    assert torch.allclose(off, off[:1].expand(5))


def test_rotary_positions_tell_only_how_far_apart():
    """A query's product with a key depends on the distance of their places; lengths stay."""
    x = torch.randn(2, 3, 31, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    place = torch.tensor([4, 9, 30])
    turn = Turn(31)
    a, b = turn(x, place), turn(x, place + 1000)  # beyond what was known at first
    torch.testing.assert_close(a @ a.mT, b @ b.mT)
    assert not torch.allclose(a @ a.mT, x @ x.mT)
    torch.testing.assert_close(a.norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("text_position", TEXT_POSITION)
def test_rows_may_be_encoded_as_they_come(text_position):
    """As a live decoder does: keys of the text are those of their places, whatever came before."""
    head = head_of(text_position=text_position)
    rows = some_drafts(2)[0]
    whole = head.encode(rows)
    parts = [head.encode(rows[a:b], a) for a, b in ((0, 4), (4, 5), (5, len(rows)))]
    for found, expected in zip(zip(*parts, strict=True), whole, strict=True):
        torch.testing.assert_close(torch.cat(found), expected, rtol=1e-12, atol=1e-12)
