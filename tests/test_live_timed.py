"""The timed decoder against its judge: the same steps, and a log that accounts for all time."""

from statistics import median

import pytest
import torch
from models import EOS, tiny_pair, tiny_prompts
from test_exactness import EOS_IDS, MORE_SPECS, SAMPLERS, T_MAX, heads, sharp_pair

from benchmarks.plain_decoder import Decoder
from simkit import policies
from simkit.errors import HeadError
from simkit.heads.plain_scorer import PlainScorer
from simkit.live import DecoderSettings
from simkit.live.block_scorer import BlockScorer
from simkit.live.clock import Clock, CudaClock
from simkit.live.deciders import check
from simkit.live.decoders import TimedDecoder
from simkit.live.log import Spans
from traces.record import draws

pytestmark = pytest.mark.usefixtures("one_thread")

LIVE = [
    spec
    for spec in (*policies.chains(), *MORE_SPECS)
    if isinstance(p := policies.parse(spec), policies.Sequential)
    and not p.needs_future
    and (type(p).bind is policies.Policy.bind or p.head)
    and "h=cost" not in spec
]


def settings(sampler="greedy", first_token="draft", **more):
    given = {"max_new_tokens": T_MAX, "eos_token_ids": EOS_IDS, "seed": 11} | more
    return DecoderSettings(SAMPLERS[sampler], first_token=first_token, **given)


def both(policy, setting, family="llama-gqa"):
    pair = sharp_pair(family)
    models = pair.target, pair.draft, policy, setting, pair.vocab_size
    judge = Decoder(*models, {name: PlainScorer(head) for name, head in heads(family).items()})
    timed = TimedDecoder(*models, {n: BlockScorer(head) for n, head in heads(family).items()})
    return judge, timed


def timed_only(spec, setting):
    """Without heads; None decodes with the target alone."""
    pair, policy = sharp_pair("llama-gqa"), policies.parse(spec) if spec else None
    return TimedDecoder(pair.target, pair.draft, policy, setting, pair.vocab_size)


FEW = ("fixed(1)", "svip(h=1.2)", "pacer(block=2, threshold=0.6, carry_threshold=True)")


@pytest.mark.parametrize(
    ("sampler", "spec"),
    [(s, spec) for s in SAMPLERS for spec in (LIVE if s in ("greedy", "t1") else FEW)],
)
def test_it_decodes_as_the_judge_does(spec, sampler):
    policy = policies.parse(spec)
    for first_token in ("draft", "prefill") if spec in FEW else ("prefill",):
        setting = settings(sampler, first_token)
        try:
            policy.columns(setting.sampler)
        except policies.PolicyError:
            pytest.skip("the rule does not hold under this sampler")
        judge, timed = both(policy, setting)
        for number, prompt in enumerate(tiny_prompts(3, seed=9)):
            expected, got = judge.decode(prompt.tokens, number), timed.decode(prompt.tokens, number)
            assert (got.steps, got.output) == (expected.steps, expected.output)


@pytest.mark.parametrize("sampler", ["greedy", "t1"])
@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_the_target_alone_gives_the_same_output(sampler, first_token):
    judge, _ = both(policies.parse("fixed(2)"), settings(sampler, first_token))
    alone = timed_only(None, settings(sampler, first_token))
    for number, prompt in enumerate(tiny_prompts(3, seed=9)):
        got = alone.decode(prompt.tokens, number)
        assert got.output == judge.decode(prompt.tokens, number).output
        assert got.steps == []
        assert {row.component for row in got.rows} <= {"target", ""}
        passes = [row for row in got.rows if row.kind == "verify"]
        assert len(passes) == len(got.output) - (first_token == "prefill")


@pytest.mark.parametrize(
    ("spec", "sampler"),
    [
        ("svip(h=1.2)", "greedy"),
        ("svip(h=1.2)", "t1"),
        ("pacer(block=2, threshold=0.6)", "greedy"),
        ("llamacpp", "greedy"),
    ],
)
def test_the_log_accounts_for_every_pass_and_all_time(spec, sampler):
    _, timed = both(policies.parse(spec), settings(sampler))
    prompt = tiny_prompts(5, seed=9)[-1].tokens
    for _ in range(2):
        got = timed.decode(prompt, 0)
        by_step, shares = {}, []
        for row in got.rows[:-1]:
            by_step.setdefault(row.step, []).append(row)
        assert sorted(by_step) == list(range(len(got.steps) + 1))
        for step, number in zip(got.steps, sorted(by_step)[1:], strict=True):
            rows = by_step[number]
            whole = rows[-1]
            assert (whole.kind, whole.start, whole.accepted) == ("step", step.start, step.accepted)
            assert whole.depth == step.drafted == sum(row.kind == "draft" for row in rows)
            (verify,) = [row for row in rows if row.kind == "verify"]
            assert verify.tokens_in == step.draft_length + 1
            assert verify.context_len == len(prompt) + step.start - 2
            parts = sum(row.seconds for row in rows[:-1])
            assert 0 < parts <= whole.seconds
            shares.append(parts / whole.seconds)
        assert median(shares) > 0.8  # of one step, a busy machine may take any share
        assert sum(r.tokens_in for r in got.rows if r.kind == "step") == len(got.output)
        assert got.seconds == pytest.approx(sum(r.seconds for r in got.rows if r.kind == "step"))
        prefills = [(r.component, r.tokens_in) for r in got.rows if r.kind == "prefill"]
        assert prefills == [("target", len(prompt) - 1), ("draft", len(prompt) - 1)]


def test_verified_batches_are_read_anew_by_the_draft_of_a_policy_that_does_so():
    policy = policies.parse("llamacpp(version=2026)")
    judge, timed = both(policy, settings())
    for number, prompt in enumerate(tiny_prompts(3, seed=9)):
        expected, got = judge.decode(prompt.tokens, number), timed.decode(prompt.tokens, number)
        assert (got.steps, got.output) == (expected.steps, expected.output)
        again = [row for row in got.rows if row.kind == "draft" and row.depth == 0]
        assert [row.tokens_in for row in again] == [s.draft_length + 1 for s in got.steps]
        known = len(prompt.tokens) - 1
        assert [row.context_len for row in again] == [known + s.start - 1 for s in got.steps]


def test_a_head_is_asked_once_a_block_and_only_when_it_is_whole():
    policy = policies.parse("pacer(block=3, threshold=0.5, criterion=any)")
    _, timed = both(policy, settings())
    got = timed.decode(tiny_prompts(5, seed=9)[-1].tokens, 0)
    calls = [row for row in got.rows if row.kind == "head"]
    assert {row.tokens_in for row in calls} == {3}
    assert len(calls) == sum(policy.calls(step.drafted) for step in got.steps)


class Ticks(Clock):
    """A clock of which every reading is one second later."""

    def __init__(self):
        self.now = 0

    def mark(self):
        self.now += 1_000_000_000
        return self.now


def test_what_is_left_out_is_taken_off_its_step():
    spans = Spans(Ticks())
    begun = spans.clock.mark()
    spans.add("verify", "target", spans.clock.mark(), spans.clock.mark(), 1)
    with spans.left_out():
        pass
    spans.close(1, begun, 1, 0, 0, 1)
    assert [(row.kind, row.seconds) for row in spans.rows()] == [
        ("verify", 1.0),
        ("step", 4.0),  # five from the first reading to the last, one left out
        ("sequence", 4.0),
    ]


def test_the_extra_pass_of_keyed_draws_is_no_row():
    _, timed = both(policies.parse("fixed(1)"), settings("t1"))
    got = timed.decode(tiny_prompts(5, seed=9)[-1].tokens, 0)
    passes = sum(row.kind == "draft" for row in got.rows)
    assert passes == sum(step.drafted for step in got.steps)
    assert {row.tokens_in for row in got.rows if row.kind == "draft"} == {1, 2}


@pytest.mark.parametrize("spec", [None, "fixed(3)", "svip(h=1.2)"])
def test_keyed_draws_take_one_pass_of_the_draft_a_step(spec):
    """Of as many tokens as the text and the draft have grown by; the prompt is read once."""
    timed, prompt = timed_only(spec, settings("t1")), tiny_prompts(5, seed=9)[-1].tokens
    reads, read = [], timed.keyed.reader.read
    timed.keyed.reader.read = lambda texts: reads.append(len(texts[0])) or read(texts)
    got = timed.decode(prompt, 0)
    first, *later = reads
    verifies = [row.tokens_in for row in got.rows if row.kind == "verify"]
    assert first == len(prompt) + verifies[0] - 1
    assert later == verifies[1:]


class Counted(Clock):
    """A clock that stands still, but that each call of what it watches takes a second."""

    def __init__(self, monkeypatch, *watched):
        self.now, self.calls = 0, 0
        for owner, name in watched:
            monkeypatch.setattr(owner, name, self.slow(getattr(owner, name)))

    def slow(self, function):
        def run(*given):
            self.now, self.calls = self.now + 1_000_000_000, self.calls + 1
            return function(*given)

        return run

    def mark(self):
        return self.now


@pytest.mark.parametrize("spec", [None, "fixed(3)", "svip(h=1.2)"])
@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_what_keyed_draws_take_is_left_out(spec, first_token, monkeypatch):
    """Hashes and the passes that only keyed draws need are in no row."""
    timed = timed_only(spec, settings("t1", first_token))
    timed.clock = Counted(monkeypatch, (draws, "_mix"), (timed.keyed.reader, "read"))
    got = timed.decode(tiny_prompts(5, seed=9)[-1].tokens, 0)
    assert timed.clock.calls > 5 * len(got.steps or got.output)
    assert {row.seconds for row in got.rows} == {0}


def test_a_race_is_timed_wherever_an_engine_draws(monkeypatch):
    """One in each draft pass, one in each verification."""
    timed = timed_only("fixed(3)", settings("t1"))
    timed.clock = Counted(monkeypatch, (draws, "winner"))
    got = timed.decode(tiny_prompts(5, seed=9)[-1].tokens, 0)
    draw = {"draft", "verify"}
    assert {row.seconds for row in got.rows if row.kind in draw} == {1}
    assert {row.seconds for row in got.rows if row.kind in ("prefill", "policy")} == {0}
    assert got.seconds == sum(row.kind in draw for row in got.rows)


def test_greedy_decoding_knows_nothing_of_keys(monkeypatch):
    timed = timed_only("fixed(3)", settings())
    assert timed.keyed is None
    timed.clock = Counted(monkeypatch, (draws, "_mix"))
    timed.decode(tiny_prompts(5, seed=9)[-1].tokens, 0)
    assert timed.clock.calls == 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("oracle", "needs the future"),
        ("pacer", "the head pacer, which is not given"),
        ("specdecpp", "the head specdecpp"),
    ],
)
def test_what_cannot_run_live_is_refused(spec, words):
    with pytest.raises(policies.PolicyError, match=words):
        check(policies.parse(spec), settings(), {})


@pytest.mark.parametrize("kind", ["pacer", "acceptance_head"])
def test_block_scores_are_the_judge_s(kind):
    head = heads("llama-gqa")[kind]
    judge, block = PlainScorer(head), BlockScorer(head)
    states = torch.randn(60, 32, generator=torch.Generator().manual_seed(0))
    n_prefix = 9
    for accepted in (3, 0, 5, 40):  # of drafts of 4, 2 and 3 tokens behind what was cut
        for depth in (4, 6, 9):
            got = block.score(states[: n_prefix + depth], n_prefix, 3)
            expected = [
                judge.score(states[: n_prefix + d], n_prefix) for d in range(depth - 2, depth + 1)
            ]
            assert got == pytest.approx(expected, abs=1e-3)
        n_prefix = min(n_prefix + accepted, 50)
        block.cut(n_prefix)
        states[n_prefix:] = torch.randn(
            60 - n_prefix, 32, generator=torch.Generator().manual_seed(accepted)
        )


def test_a_head_of_another_width_is_refused():
    head = heads("llama-gqa")["pacer"]
    with pytest.raises(HeadError, match="another draft"):
        BlockScorer(head).score(torch.zeros(4, 31), 2, 1)


def test_a_head_with_a_lag_is_asked_from_the_second_token_on():
    policy = policies.parse("acceptance_head(h=0.9, max_draft=9)")
    _, timed = both(policy, settings())
    got = timed.decode(tiny_prompts(5, seed=9)[-1].tokens, 0)
    calls = [row for row in got.rows if row.kind == "head"]
    assert {row.tokens_in for row in calls} == {1} and {row.depth for row in calls} >= {2}
    assert len(calls) == sum(policy.calls(step.drafted) for step in got.steps)
    assert len(calls) < sum(step.drafted for step in got.steps)


def test_a_head_with_a_lag_is_not_asked_early():
    head, policy = heads("llama-gqa")["acceptance_head"], policies.AcceptanceHead(lag=0)
    for given in (head, BlockScorer(head)):
        with pytest.raises(HeadError, match="a token late: give lag=1"):
            check(policy, settings(), {"acceptance_head": given})
    pair = sharp_pair("llama-gqa")
    given = {"acceptance_head": PlainScorer(head)}
    with pytest.raises(policies.PolicyError, match="give lag=1"):
        Decoder(pair.target, pair.draft, policy, settings(), heads=given)


def test_a_head_that_scores_no_draft_as_deep_is_refused():
    head = heads("llama-gqa")["pacer"]
    policy, deep = policies.parse("pacer"), settings(max_new_tokens=T_MAX + 2)
    words = (
        rf"^pacer\(block=4\) drafts up to {T_MAX + 1} tokens, but its head pacer scores up to"
        rf" {T_MAX}:"
    )
    for given in (head, BlockScorer(head)):
        with pytest.raises(HeadError, match=words):
            check(policy, deep, {"pacer": given})
        assert check(policies.Pacer(max_draft=T_MAX), deep, {"pacer": given}) == ("score:pacer",)
        assert check(policy, settings(max_new_tokens=T_MAX + 1), {"pacer": given})
    by_row = {"acceptance_head": heads("llama-gqa")["acceptance_head"]}
    assert check(policies.parse("acceptance_head(h=0.5)"), deep, by_row)


def test_no_eos_and_one_token_of_prompt():
    pair = tiny_pair(dtype=torch.float64)
    setting = DecoderSettings(max_new_tokens=6, eos_token_ids=(EOS,))
    for policy in (policies.parse("fixed(3)"), None):
        timed = TimedDecoder(pair.target, pair.draft, policy, setting, pair.vocab_size)
        got = timed.decode([5], 0)
        assert all(row.kind != "prefill" for row in got.rows)
        assert got.output


def test_events_are_read_after_the_device_is_done_and_used_again(monkeypatch):
    """`CudaClock` with a device of which every event comes two milliseconds after the last."""
    made, waits = [], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            made.append(self)

        def record(self, stream):
            self.ms, Event.now = Event.now, Event.now + 2

        def elapsed_time(self, other):
            assert waits
            return other.ms - self.ms

    Event.now = 0
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    clock = CudaClock(torch.device("cuda", 0))
    for _ in range(3):
        spans = Spans(clock)
        begun = clock.mark()
        spans.add("draft", "draft", clock.mark(), clock.mark(), 1, depth=1)
        spans.close(1, begun, 1, 1, 0, 1)
        assert [row.seconds for row in spans.rows()] == pytest.approx([0.002, 0.006, 0.006])
    assert len(made) == 4 and len(waits) == 3
