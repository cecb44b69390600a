"""Drafts that take no masks: their branches go on from clones of a state, as plain passes say."""

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from models import EOS
from test_exactness import check
from test_record import check_against_plain_decoding
from tiny_models import tiny_model

from benchmarks import families, plain_decoder
from benchmarks.recorded import record
from benchmarks.tiny_models import VOCAB, noisy, tiny_config
from simkit import policies
from traces import RecordError, Sampler
from traces.record import own_texts, proof_own
from traces.record.estimate import estimate
from traces.record.header import make_header
from traces.record.own_texts import OwnText
from traces.record.pair import Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.proof_own import Way, prove_rolled
from traces.record.shard import record_shard

pytestmark = pytest.mark.usefixtures("one_thread")

SAMPLERS = {"greedy": Sampler(), "t1": Sampler(1.0), "point": Sampler(1.0, draft_temperature=0)}
KINDS = ("mamba", "jamba", "falcon_h1", "qwen3_next", "lfm2", "rwkv")
LENGTHS = (4, 12, 7)
T_MAX = 16
CLOSE = 1e-4  # recurrent states are in float32 in models of any dtype


@cache
def model_of(kind):
    """A tiny model whose tokens depend on what was read, in float64 where it has that."""
    if kind == "llama":
        return families._built(tiny_config("llama"))[1]
    return families._built(tiny_config(kind))[1]


@cache
def pair_of(target, draft=None):
    model = noisy(model_of(draft or target))
    return Pair(model_of(target), model, None, VOCAB, (EOS,), own=True)


def prompts():
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(2, VOCAB - 1, (n,), generator=generator).tolist() for n in LENGTHS]
    return [Prompt(str(n), "a", None, row) for n, row in enumerate(rows)]


def plan_of(sampler, **changes):
    given = dict(seed=3, max_new_tokens=T_MAX, max_draft=6, eos_token_ids=(EOS,), batch_size=2)
    return Plan(SAMPLERS[sampler], **{**given, **changes})


CASES = [(k, s) for k in KINDS for s in SAMPLERS if k != "qwen3_next" or s == "t1"]  # it is slow


@pytest.mark.parametrize(("kind", "sampler"), CASES)
def test_rows_and_branches_equal_plain_decoding(kind, sampler):
    pair, plan = pair_of(kind), plan_of(sampler)
    assert Way.packed not in pair.prove(30)
    shard = record_shard(pair, prompts(), 0, plan)
    seen = check_against_plain_decoding(pair, plan, prompts(), shard, CLOSE)
    assert seen["on"] > 20 and seen["off"] > 15


@pytest.mark.parametrize("names", [("llama", "rwkv"), ("jamba", "llama"), ("mamba", "lfm2")])
@pytest.mark.parametrize("sampler", ["greedy", "t1"])
def test_either_model_may_be_packed(names, sampler):
    """With the target's view of branches, where it is the target that takes masks."""
    pair = pair_of(*names)
    plan = plan_of(sampler, branch_target=names[0] == "llama")
    shard = record_shard(pair, prompts(), 0, plan)
    seen = check_against_plain_decoding(pair, plan, prompts(), shard, CLOSE)
    assert seen["on"] > 20 and seen["off"] > 15


class Uncached:
    """A reader that reads all of its text anew in each pass; see `plain_reader.Reader`."""

    def __init__(self, model, vocab_size, keep_states=False):
        self.model, self.vocab_size, self.device = model, vocab_size, torch.device("cpu")
        self.forget()

    def forget(self):
        self.text = []

    @property
    def length(self):
        return len(self.text)

    def read(self, tokens, keep):
        self.text += tokens
        with torch.no_grad():
            logits = self.model(torch.tensor([self.text]), use_cache=False).logits
        return logits[0, -keep:, : self.vocab_size]

    def cut(self, length):
        self.text = self.text[:length]


@pytest.mark.parametrize("sampler", ["greedy", "t1"])
@pytest.mark.parametrize("names", [("mamba",), ("jamba",), ("lfm2",), ("llama", "rwkv")])
def test_steps_are_those_of_a_decoder_without_a_cache(names, sampler, monkeypatch):
    monkeypatch.setattr(plain_decoder, "Reader", Uncached)
    pair, plan = pair_of(*names), plan_of(sampler, max_draft=T_MAX)
    trace = record(pair, prompts(), plan)
    for spec in ("fixed(3)", "svip(h=1.2)", "heuristic(initial=2)"):
        check(pair, prompts(), plan, trace, policies.parse(spec), "draft")


@pytest.mark.parametrize("by_engine", [False, True])
@pytest.mark.parametrize("sampler", ["greedy", "t1"])
def test_known_outputs_are_followed(sampler, by_engine):
    plan = plan_of(sampler, coupling="target")
    pair = pair_of("jamba")
    first = record_shard(pair, prompts(), 0, plan)
    outputs = first.sequences["output_tokens"]
    known = replace(pair, known=True)
    rows = [replace(p, output=y) for p, y in zip(prompts(), outputs, strict=True)]
    plan = replace(plan, by_engine=by_engine, at_once=32)
    again = record_shard(known, rows, 0, plan, outputs=None if by_engine else outputs)
    assert again.sequences == first.sequences and again.strange == 0
    for table in ("positions", "branches"):
        for name, values in first.tables[table].items():
            np.testing.assert_allclose(again.tables[table][name], values, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_and_joined_clones_do_not_matter(kind, monkeypatch):
    pair, plan = pair_of(kind), plan_of("t1")
    whole = record_shard(pair, prompts(), 0, plan)
    monkeypatch.setattr("traces.record.rolled.MOST_CLONES", 3)
    few = record_shard(pair, prompts(), 0, plan)
    monkeypatch.setattr(Pair, "prove", lambda *given: proof_own.Ways(Way.single, Way.single))
    single = record_shard(pair, prompts(), 0, plan)
    for other in (few, single):
        for table in ("positions", "branches"):
            for name, values in whole.tables[table].items():
                ours = other.tables[table][name]
                np.testing.assert_allclose(ours, values, atol=CLOSE, err_msg=name)


WAYS = {**dict.fromkeys(KINDS, Way.joined), "rwkv": Way.single}  # which mixes up rows of a token


@pytest.mark.parametrize("kind", KINDS)
def test_clones_are_joined_where_that_is_right(kind):
    assert prove_rolled(model_of(kind), 30) is WAYS[kind]


def shared(self):
    """A planted fault: a clone that has its parent's state."""
    return copy.copy(self)


def half_shared(self):
    """A planted fault: a clone with keys and values of its own, and its parent's other tensors."""
    other, memo = copy.copy(self), {}
    for layer in self._state.get("past_key_values", self._state.get("cache_params")).layers:
        for states in ("conv_states", "recurrent_states"):
            for tensor in vars(layer).get(states, {}).values():
                memo[id(tensor)] = tensor
    other._state = copy.deepcopy(self._state, memo)
    return other


FAULTS = [(fault, kind) for fault in (shared, half_shared) for kind in KINDS]
FAULTS.remove((half_shared, "rwkv"))  # it has no layers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_a_clone_that_shares_its_state_is_found(fault, kind, dtype, monkeypatch):
    model = copy.deepcopy(model_of(kind)).to(dtype)
    prove_rolled(model, 0)
    monkeypatch.setattr(OwnText, "clone", fault)
    with pytest.raises(RecordError, match="(side by side|clones of a text's state).* differ from"):
        prove_rolled(model, 0)


def test_without_the_proof_such_a_clone_would_be_recorded(monkeypatch):
    pair, plan = pair_of("mamba"), plan_of("greedy")
    ways = pair.prove(30)
    monkeypatch.setattr(OwnText, "clone", shared)
    monkeypatch.setattr(Pair, "prove", lambda *given: ways)
    shard = record_shard(pair, prompts(), 0, plan)
    with pytest.raises(AssertionError):
        check_against_plain_decoding(pair, plan, prompts(), shard, CLOSE)


def test_texts_that_share_a_state_are_found(monkeypatch):
    """A planted fault: a model that keeps its state itself, whatever it is given."""
    model, states = copy.deepcopy(model_of("rwkv")), []
    run = model.forward

    def forgets(input_ids, state=None, **given):
        found = run(input_ids, state=state and states[-1], **given)
        states.append(found.state)
        return found

    prove_rolled(model, 0)
    monkeypatch.setattr(model, "forward", forgets)
    with pytest.raises(RecordError, match="side by side"):
        prove_rolled(model, 0)


def test_clones_that_are_joined_wrongly_stay_single(monkeypatch):
    """A planted fault: keys of shorter texts are padded behind their end."""
    monkeypatch.setattr(
        own_texts, "padded", lambda part, more: torch.nn.functional.pad(part, (0, 0, 0, more))
    )
    assert prove_rolled(copy.deepcopy(model_of("jamba")), 0) is Way.single
    assert prove_rolled(copy.deepcopy(model_of("mamba")), 0) is Way.joined  # which has none


def test_a_draft_is_refused_where_it_is_not_asked_for():
    pair = replace(pair_of("rwkv"), own=False)
    with pytest.raises(RecordError, match="keeps a state"):
        record_shard(pair, prompts(), 0, plan_of("greedy"))


REFUSED = [
    ("rwkv", "rwkv", {"hidden": True}, "hidden states are read in packed passes, which rwkv"),
    ("llama", "rwkv", {"mix": 0.5}, "mixed contexts are read in packed passes, which rwkv"),
    ("rwkv", "llama", {"mix": 0.5}, "mixed contexts are read in packed passes, which rwkv"),
    ("rwkv", "llama", {"branch_target": True}, "the target's view of branches"),
]


@pytest.mark.parametrize(("target", "draft", "given", "message"), REFUSED)
def test_what_needs_packed_passes_is_refused(target, draft, given, message):
    with pytest.raises(RecordError, match=message):
        record_shard(pair_of(target, draft), prompts(), 0, plan_of("greedy", **given))


def test_the_estimate_goes_by_rows(monkeypatch):
    """Of a draft whose branches are read token by token; here every row takes a second."""
    clock = [0.0]
    run = record_shard

    def timed(*given):
        shard = run(*given)
        clock[0] += sum(len(shard.tables[name]["position"]) for name in shard.tables)
        return shard

    monkeypatch.setattr("traces.record.estimate.record_shard", timed)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    pair, plan = pair_of("rwkv"), plan_of("greedy", max_new_tokens=64, max_draft=16)
    pair = replace(pair, tokenizer=families._Tokenizer())
    plan = replace(plan, eos_token_ids=())
    monkeypatch.setattr("traces.record.header.tokenizer_hash", lambda tokenizer: "0" * 64)
    batches = [prompts()[:2]] * 9
    size = estimate(pair, batches, plan, make_header(pair, prompts(), plan))
    before = clock[0]
    record_shard(pair, batches[0], 0, plan)
    timed(pair, batches[0], 0, plan)
    assert size.seconds == pytest.approx(9 * (clock[0] - before), rel=0.25)


def test_a_packed_model_is_read_as_before():
    assert pair_of("llama").prove(30) == proof_own.PACKED
    assert (
        Pair(tiny_model("llama"), tiny_model("qwen2"), None, 64, (EOS,)).prove(0)
        == proof_own.PACKED
    )
