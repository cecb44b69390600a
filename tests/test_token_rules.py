"""Drafters from tokens alone, against the same rules in plain Python."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from token_rules import agreed, all_starts, ends_of
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from traces.arrays import read_only
from traces.attach import registry
from traces.attach.tokens import (
    NGram,
    NGramSimple,
    PromptLookup,
    Suffix,
    matching,
    suffix,
)
from traces.attach.tokens.automaton import COUNT
from traces.attach.tokens.suffix import EarlierOutputs
from traces.errors import DrafterError

TOKENS = st.integers(1, 4).flatmap(lambda top: st.lists(st.integers(0, top - 1), max_size=40))
SOME = st.integers(1, 6)


@st.composite
def texts(draw):
    """Text, tokens of the prompt, EOS tokens, T_max: few tokens, so that much comes again."""
    text = draw(TOKENS)
    n_prompt = draw(st.integers(0, len(text)))
    eos = draw(st.sampled_from([(), (0,), (1, 3), (9,)]))
    room = draw(st.integers(0, 3) | st.just(50))
    return np.array(text, np.int32), n_prompt, np.array(eos, np.int32), len(text) - n_prompt + room


@st.composite
def ngrams(draw):
    least = draw(st.integers(1, 3))
    which = draw(st.sampled_from(["first", "last"]))
    return NGram(draw(SOME), least, draw(st.integers(least, 5)), which)


def suffixes(shared=False):
    return st.builds(
        Suffix,
        max_depth=st.integers(2, 8) | st.just(64),
        max_tokens=SOME | st.just(64),
        factor=st.sampled_from([0.0, 0.5, 1.0, 2.5]),
        offset=st.sampled_from([0.0, -1.0, 1.0, 0.5]),
        min_prob=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
        shared=st.just(shared),
    )


def check(rule, case, memory=None, outputs=()):
    text, n_prompt, eos, max_new_tokens = case
    found = rule.propose(text, n_prompt, eos, max_new_tokens, memory)
    wanted = all_starts(rule, text.tolist(), n_prompt, eos.tolist(), max_new_tokens, outputs)
    drafts = [draft for draft, _ in wanted]
    assert [found.draft(i + 1).tolist() for i in range(len(wanted))] == drafts
    assert found.tokens.tolist() == sum(drafts, [])
    assert found.lengths.tolist() == [len(draft) for draft in drafts]
    rests = [text[n_prompt + i :].tolist() for i in range(len(wanted))]
    pairs = zip(drafts, rests, strict=True)
    assert found.accepted.tolist() == [agreed(draft, rest) for draft, rest in pairs]
    assert found.offsets.tolist() == [0, *np.cumsum(found.lengths)]
    kinds = (found.lengths.dtype, found.accepted.dtype, found.tokens.dtype, found.offsets.dtype)
    assert kinds == (np.int32, np.int32, np.int32, np.int64)
    if rule.name == "suffix":
        assert found.score.dtype == np.float32
        assert found.score.tolist() == [p for _, some in wanted for p in some]
    else:
        assert found.score is None
    return found


@given(st.builds(PromptLookup, SOME, st.integers(1, 4)), texts())
@settings(deadline=None, max_examples=300)
def test_prompt_lookup(rule, case):
    check(rule, case)


@given(ngrams(), texts())
@settings(deadline=None, max_examples=300)
def test_ngram(rule, case):
    check(rule, case)


@given(st.builds(NGramSimple, st.integers(1, 3), st.integers(1, 6)), texts())
@example(NGramSimple(1, 2), (np.zeros(30, np.int32), 0, np.zeros(0, np.int32), 30))
@example(NGramSimple(2, 3), (np.array([1, 2, 3] * 8, np.int32), 0, np.zeros(0, np.int32), 24))
@settings(deadline=None, max_examples=400)
def test_ngram_simple(rule, case):
    check(rule, case)


@given(suffixes(), texts())
@example(Suffix(), (np.zeros(100, np.int32), 0, np.zeros(0, np.int32), 100))
@settings(deadline=None, max_examples=400)
def test_suffix(rule, case):
    check(rule, case)


@given(suffixes(shared=True), st.lists(texts(), max_size=4))
@settings(deadline=None, max_examples=300)
def test_suffix_over_earlier_outputs(rule, cases):
    memory, outputs = rule.memory(), []
    for case in cases:
        check(rule, case, memory, outputs)
        outputs.append(case[0][case[1] :].tolist())


@given(st.builds(PromptLookup, SOME, st.integers(1, 4)), texts())
@settings(deadline=None, max_examples=200)
def test_prompt_lookup_is_that_of_transformers(rule, case):
    """Draft by draft; it knows no T_max but refuses to draft where one token is left."""
    text, n_prompt, eos, max_new_tokens = case
    found = rule.propose(text, n_prompt, eos, max_new_tokens)
    theirs = PromptLookupCandidateGenerator(
        torch.tensor(eos) if len(eos) else None,
        num_output_tokens=rule.length,
        max_matching_ngram_size=rule.ngram,
        max_length=n_prompt + max_new_tokens,
    )
    for i in range(1, len(found.lengths) + 1):
        known = text[: n_prompt + i - 1]
        if len(known):
            ids, _ = theirs.get_candidates(torch.tensor(known, dtype=torch.long)[None])
            draft = ids[0, len(known) :].tolist()
            assert found.draft(i).tolist() == draft[: max_new_tokens - i]


@given(TOKENS, st.integers(2, 6))
@settings(deadline=None)
def test_counts_are_those_of_substrings(tokens, deepest):
    memory = EarlierOutputs()
    for part in (tokens[:15], tokens[15:]):
        memory.add(np.array(part, np.int32), deepest)
    for piece in {tuple(tokens[a:b]) for a in range(40) for b in range(a + 1, a + 1 + deepest)} - {
        ()
    }:
        wanted = len(ends_of(list(piece), [tokens[:15], tokens[15:]]))
        assert count(memory.counts, piece) == wanted


@pytest.mark.parametrize(
    ("known", "draft"),
    [
        # Behind 0 stands 0 first, then 1: a new child goes to the end of its list.
        ([0, 0, 1, 0], 0),
        # Behind 9: 1 2 3; then 3 is counted again, in front; then 2, not the first of 1 2.
        ([9, 1, 9, 2, 9, 3, 9, 3, 9, 2, 9], 3),
        # 1 was the first of those counted once, so it goes in front of 3, which has two.
        ([9, 1, 9, 2, 9, 3, 9, 3, 9, 1, 9], 1),
        # And then 2, the only one that is left.
        ([9, 1, 9, 2, 9, 3, 9, 3, 9, 1, 9, 2, 9], 2),
    ],
)
def test_equal_counts_go_by_the_list(known, draft):
    """ArcticInference 0.3.0's drafts, of its `suffix_tree.cc` compiled alone with max_depth 2."""
    one = {"max_depth": 2, "max_tokens": 1, "min_prob": 0.0}
    given = np.array([*known, 8], np.int32), len(known), np.zeros(0, np.int32), 9
    assert Suffix(**one).propose(*given).draft(1).tolist() == [draft]
    assert Suffix(**one, tree=True).found(*given).rows(0)["token"][1:].tolist() == [draft]


def count(counts, piece):
    """How often a piece was counted, by the edges alone."""
    edges = counts.edges[1 : counts.used[1]]
    by = {(source, token): to for source, token, to, *_ in edges.tolist()}
    state = 0
    for token in piece:
        state = by.get((state, token))
        if state is None:
            return 0
    return counts.states[state, COUNT]


def test_room_grows_with_what_is_added():
    rng, memory = np.random.default_rng(0), EarlierOutputs()
    for _ in range(60):
        memory.add(rng.integers(3, size=rng.integers(30)).astype(np.int32), 8)
    n_states, n_edges = memory.counts.used[:2]
    assert n_states <= len(memory.counts.states) and n_edges <= len(memory.counts.edges)
    assert n_edges < len(memory.counts.table)


@pytest.mark.parametrize("rule", [PromptLookup(), NGram(2, 1, 2), Suffix()])
def test_nothing_is_proposed_without_tokens(rule):
    none = np.zeros(0, np.int32)
    for text, n_prompt in ((none, 0), (np.ones(3, np.int32), 3), (np.ones(1, np.int32), 0)):
        found = rule.propose(text, n_prompt, none, 8)
        assert found.lengths.tolist() == [0] * (len(text) - n_prompt)
        assert len(found.tokens) == 0


@pytest.mark.parametrize("rule", [PromptLookup(), NGram(2, 1, 2), Suffix()])
def test_other_integers_are_taken_without_compiling_again(rule):
    text, eos = [1, 2, 1, 2, 1, 2, 3], np.array([3], np.int32)
    wanted = rule.propose(np.array(text, np.int32), 2, eos, 8).tokens.tolist()
    before = compiled_kinds()
    fixed = read_only(np.array(text, np.int32))
    for tokens in (fixed, np.array(text), np.array([text, text], np.int16).T[:, 0]):
        found = rule.propose(tokens, np.int32(2), read_only(eos.astype(int)), np.int64(8))
        assert found.tokens.dtype == np.int32
        assert found.tokens.tolist() == wanted
    assert compiled_kinds() == before
    with pytest.raises(ValueError, match="a prompt of 8 tokens in a text of 7"):
        rule.propose(np.array(text), 8, eos, 8)


def compiled_kinds():
    functions = (matching._begins, matching.cut, suffix._propose)
    return [len(function.signatures) for function in functions]  # pyright: ignore


def test_a_memory_goes_with_shared():
    none = np.zeros(0, np.int32)
    for rule, memory in ((Suffix(), EarlierOutputs()), (Suffix(shared=True), None)):
        with pytest.raises(ValueError, match="goes with shared=true"):
            rule.propose(none, 0, none, 8, memory)
    assert all(rule().memory() is None for rule in (PromptLookup, NGram, Suffix))


@pytest.mark.parametrize(
    "name, arguments, says",
    [
        (
            "prompt_lookup",
            {"length": 0},
            "prompt_lookup: length must be a whole number >= 1",
        ),
        ("prompt_lookup", {"ngram": 1.5}, "ngram must be a whole number >= 1, not 1.5"),
        ("prompt_lookup", {"ngram": True}, "ngram must be a whole number >= 1, not True"),
        ("prompt_lookup", {"length": 2**31}, "length must be at most 2147483647, not 2147483648"),
        ("ngram", {"which": "middle"}, "ngram: which must be first or last, not 'middle'"),
        ("ngram", {"least": 3, "most": 2}, "ngram: least is 3, more than most, 2"),
        ("suffix", {"max_depth": 1}, "suffix: max_depth must be a whole number >= 2, not 1"),
        ("suffix", {"max_depth": 65537}, "max_depth must be at most 65536"),
        ("suffix", {"factor": "x"}, "factor must be a number in [0, 1e+06], not 'x'"),
        ("suffix", {"offset": float("nan")}, "offset must be a number in [-1e+06, 1e+06]"),
        ("suffix", {"min_prob": 1.5}, "min_prob must be a number in [0, 1], not 1.5"),
        ("suffix", {"shared": 1}, "shared must be true or false, not 1"),
    ],
)
def test_bad_numbers_are_refused(name, arguments, says):
    with pytest.raises(DrafterError) as raised:
        registry.get(name)(**arguments)
    assert says in str(raised.value)


def test_numpys_numbers_become_pythons():
    rule = Suffix(max_depth=np.int64(8), factor=np.float32(0.5), min_prob=np.int64(0))
    assert [type(v) for v in (rule.max_depth, rule.factor, rule.min_prob)] == [int, float, float]
