"""The claims: the verdict rule on made-up statistics, the claims on traces of known truth."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_traces import build, with_scores
from test_lattice import spelled_out

import simkit
import traces
from analysis.claims import (
    ENGINES,
    PAPERS,
    Allowed,
    Claim,
    Evidence,
    Part,
    Verdict,
    by_acceptance,
    check,
    claim,
    claims,
    engines,
)
from analysis.claims.evidence import Untestable, less
from analysis.claims.table import Finding, Findings, examine
from analysis.claims.verdict import ABOVE_1, BELOW_0, UNJUDGED, against_print, judge, overall
from analysis.replays import ALONE, LONGEST, Replayed, folds
from analysis.speeds import per
from analysis.stats import Estimate
from analysis.study import Study
from simkit.costs import Linear
from simkit.statistics.enough import FOR_VERDICT
from traces.errors import UserError
from traces.memory import from_arrays
from traces.synthetic import decaying, iid, markov

pytestmark = pytest.mark.usefixtures("few_requests")

COST = Linear(draft_s=1.0, target_s=6.0, target_per_token_s=0.1, head_s=0.2)
CLAIMS = {one.name: one for one in claims()}
HOLDS, FAILS, OPEN, NO_EXAMPLE, THEOREM, SETTING, UNTESTED = Verdict


def between(lo, hi):
    return Estimate((lo + hi) / 2, lo, hi, 20)


@pytest.mark.parametrize(
    ("found", "expected", "verdict"),
    [
        (between(1.1, 1.3), ABOVE_1, HOLDS),
        (between(0.9, 1.3), ABOVE_1, OPEN),
        (between(0.7, 0.9), ABOVE_1, FAILS),
        (between(1.0, 1.2), ABOVE_1, OPEN),  # an end on the line tells nothing
        (between(-0.4, -0.1), BELOW_0, HOLDS),
        (between(0.1, 0.4), BELOW_0, FAILS),
        (between(0.12, 0.3), Allowed(0.11, 0.43), HOLDS),
        (between(0.05, 0.3), Allowed(0.11, 0.43), OPEN),
        (between(0.05, 0.6), Allowed(0.11, 0.43), OPEN),
        (between(0.5, 0.6), Allowed(0.11, 0.43), FAILS),
        (between(0.0, 0.1), Allowed(0.11, 0.43), FAILS),
        (Estimate(1.2, None, None, 1, "one prompt: no interval"), ABOVE_1, UNTESTED),
        (Estimate(None, None, None, 0, "no rows"), ABOVE_1, UNTESTED),
        (Estimate(1.2, 1.1, 1.3, FOR_VERDICT - 1), ABOVE_1, UNTESTED),
        (Estimate(1.2, 1.1, 1.3, FOR_VERDICT), ABOVE_1, HOLDS),
    ],
)
def test_verdict(found, expected, verdict):
    assert judge(found, expected) is verdict


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, OPEN], OPEN),
        ([HOLDS, FAILS, UNTESTED], FAILS),
        ([HOLDS, OPEN, UNTESTED], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_verdict_on_several(parts, verdict):
    assert overall(parts) is verdict


real = st.floats(-10, 10)


@given(real, real, real, real)
def test_a_claim_and_its_opposite(a, b, c, d):
    """Never do both hold, nor neither of them; more data inside an interval refutes no verdict."""
    lo, inner_lo, inner_hi, hi = sorted((a, b, c, d))
    for line in (lo, inner_lo, (lo + hi) / 2):
        above, below = (judge(between(lo, hi), one) for one in (Allowed(lo=line), Allowed(hi=line)))
        assert (above, below) in ((HOLDS, FAILS), (FAILS, HOLDS), (OPEN, OPEN))
        if above is not OPEN:
            assert judge(between(inner_lo, inner_hi), Allowed(lo=line)) is above


def test_beside_print():
    found = between(1.1, 1.3)
    assert against_print(found, (1.2, 1.2)) == "as printed"
    assert against_print(found, (1.0, 1.05)) == "above"
    assert against_print(found, (1.4, 1.5)) == "below"
    assert against_print(found, None) == ""
    assert against_print(Estimate(1.0, None, None, 1), (1.0, 1.0)) == ""


def test_less_is_that_of_normal_means():
    """Symmetric arms add as standard errors do: 3-4-5."""
    found = less(Estimate(10.0, 7.0, 13.0, 9), Estimate(2.0, -2.0, 6.0, 12))
    assert (found.value, found.lo, found.hi, found.n_prompts) == (8.0, 3.0, 13.0, 9)
    bare = less(between(1, 2), Estimate(1.0, None, None, 1, "one prompt"))
    assert (bare.value, bare.lo, bare.note) == (0.5, None, "one prompt")  # what is known is kept


def test_per_is_a_ratio_of_ratios():
    def made(accepted, steps):
        counts = {"accepted": np.array(accepted), "steps": np.array(steps)}
        return Replayed(simkit.policies.Fixed(1), counts, {})

    one, other = made([6, 3, 4], [2, 2, 3]), made([4, 4, 5], [4, 2, 4])
    assert per(one, other, "accepted", "steps").value == pytest.approx((13 / 7) / (13 / 10))


def test_registry():
    """At least 25 claims, of all papers and engines, each with a sentence and a definition."""
    assert len(CLAIMS) >= 25
    assert {one.paper for one in CLAIMS.values()} == {*PAPERS, *ENGINES}
    for one in CLAIMS.values():
        assert one.says.endswith(".") and one.place and one.printed
        assert len(one.statistic) > 20 and one.statistic.endswith("."), one.name
    papers = [(*PAPERS, *ENGINES).index(one.paper) for one in claims()]
    assert papers == sorted(papers)


def test_a_name_is_taken_once():
    def entropy_ratio(evidence):
        """Another test."""
        return []

    with pytest.raises(UserError, match="a claim named entropy_ratio exists"):
        claim("SVIP", "", "", "")(entropy_ratio)


def verdicts(trace, names, cost=COST):
    found = check(trace, cost, claims=[CLAIMS[name] for name in names], placebo=None)
    return [one.verdict for one in found.of]


DEPTH = ["lengths_vary", "marginal_falls", "conditional_falls"]


def test_independent_tokens():
    """One α: runs are geometric and conditional acceptance is flat; the marginal one falls."""
    trace = iid(60, 200, 0.8, max_draft=40, seed=5)
    assert verdicts(trace, DEPTH) == [OPEN, HOLDS, OPEN]


def test_tokens_that_depend_on_the_last():
    """After a rejection the next is rejected more often: long runs, survivors are easier."""
    trace = markov(60, 200, 0.9, 0.3, max_draft=40, seed=5)
    assert verdicts(trace, DEPTH) == [HOLDS, HOLDS, FAILS]


def test_acceptance_that_decays_with_depth():
    falling = tuple(0.95 - 0.07 * j for j in range(12))
    trace = decaying(60, 240, falling, max_draft=12, seed=5)
    assert verdicts(trace, ["marginal_falls", "conditional_falls"]) == [HOLDS, HOLDS]


def test_the_oracle_drafts_what_is_accepted():
    trace = iid(30, 100, 0.7, max_draft=30, seed=1)
    names = ["optimal_is_faster", "optimal_saves_both", "pearl_runs_more"]
    assert verdicts(trace, names) == [HOLDS] * 3


def test_entropies_of_known_ratio():
    """H(q,p) = 1.2 H(q) everywhere: all rows are in the band, and KL = 0.2 H(q)."""
    sampler = traces.Sampler(1.0)
    base = build([[(1, 1), (2, 3)] * 4] * 14, t_max=8, max_draft=8, sampler=sampler)
    rng = np.random.default_rng(0)
    h = rng.uniform(0.5, 2.5, base.n_positions).astype(np.float32)
    columns = {"draft_entropy": h, "cross_entropy": 1.2 * h, "overlap": np.exp(-h)}
    at = Evidence(Columns(base, columns))
    assert examine(CLAIMS["entropy_against_acceptance"], at).parts[0].found.value == pytest.approx(
        -1, abs=1e-3
    )
    kl = 0.2 * h.astype(float)
    gain = np.mean(1 - np.sqrt(kl / 2)) / np.mean(1 - np.sqrt(1 - np.exp(-kl))) - 1
    part = examine(CLAIMS["pinsker_by_how_much"], at).parts[0]
    assert part.found.value == pytest.approx(gain, rel=1e-5)
    share = np.mean(1 - np.sqrt(0.15 * h) <= np.exp(-h))
    assert examine(CLAIMS["estimate_is_below"], at).parts[0].found.value == pytest.approx(share)
    assert examine(CLAIMS["entropy_ratio"], at).parts[0].found.value == 1.0


class Columns(traces.Trace):
    """A trace some columns of which are made up."""

    def __init__(self, trace, columns):
        super().__init__(trace.manifest, trace._source, None)
        self._own = columns

    def positions(self, column):
        return self._own[column] if column in self._own else super().positions(column)


def test_tuned_is_what_tune_holds_out():
    """The folds, too: tasks are dealt in the trace's order, which is not that of their names."""
    trace = iid(23, 60, 0.7, max_draft=20, seed=4, tasks=("math", "chat", "code"))
    at = Evidence(trace, COST)
    held = simkit.tune(trace, [f"fixed(0:{LONGEST})"], COST)
    found = folds(trace)
    assert found is not None
    np.testing.assert_array_equal(found.fold, held.fold)
    np.testing.assert_allclose(at.tuned_fixed().total_s, held.held_out[f"fixed(0:{LONGEST})"])
    parts = at.tuned_fixed().seconds
    assert held.choices[0].speedup == pytest.approx(
        parts["baseline_s"].sum() / at.tuned_fixed().total_s.sum()
    )
    assert sum(parts[name].sum() for name in parts if name != "baseline_s") == pytest.approx(
        at.tuned_fixed().total_s.sum()
    )


def scored(accept_prob, n=14):
    return with_scores(iid(n, 40, accept_prob, max_draft=40, seed=3))


EDGES = {
    "scored": lambda: scored(0.7),
    "no scores": lambda: iid(14, 40, 0.7, max_draft=40, seed=3),
    "sampled": lambda: iid(14, 40, 0.7, max_draft=40, seed=3, sampler=traces.Sampler(1.0)),
    "all accepted": lambda: scored(1.0),
    "all rejected": lambda: scored(0.0),
    "one prompt": lambda: scored(0.7, 1),
    "no prompt": lambda: iid(0, 40, 0.7, max_draft=40, seed=3),
    "Γ = 3": lambda: iid(14, 40, 0.7, max_draft=3, seed=3),
    "one token": lambda: iid(14, 1, 0.7, max_draft=3, seed=3),
    # by the scores of seed 0 the acceptance head, which decides a token late, stops no draft at all
    "lattice": lambda: spelled_out(with_scores(iid(6, 20, 0.7, max_draft=20, seed=3), 1)),
    "few columns": lambda: build([[(1, 1), (2, 3)]] * 3, t_max=2, max_draft=2, scored=False),
}


TESTED = {  # at least so many, with a cost and without
    "scored": (40, 12),
    "no scores": (24, 10),
    "sampled": (24, 9),
    "all accepted": (12, 6),
    "all rejected": (16, 5),
    "one prompt": (0, 0),
    "no prompt": (0, 0),
    "Γ = 3": (18, 8),
    "one token": (4, 3),
    "lattice": (20, 1),
    "few columns": (0, 0),
}
REASONS = (
    r"one prompt|prompts do not differ|too few prompts|no rows|not defined on these rows"
    r"|no scores of|scores of \w+ are not by row|needs times|give one with --sampled"
    r"|the trace is sampled|drafters whose training differs|no drafter from tokens alone"
    r"|the trace is a lattice|fewer than 16 tokens"
    r"|column \w+ is not in this trace|drafts of up to \d tokens only|needs drafts of 1[06] tokens"
    r"|lets windows go to|not both attached|no drafter is attached|too few for a verdict"
    r"|about parallel drafters, and none is attached|needs drafts of 8 tokens|shows no spread"
    r"|depth \d+ was not recorded"
)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("cost", [COST, None], ids=["cost", "no cost"])
def test_edges(edge, cost):
    """Every claim has a verdict on every trace, or a reason that is one of its edges; no NaN."""
    found = check(EDGES[edge](), cost, placebo=None if cost is None else 0)
    assert len(found.of) == len(CLAIMS)
    tested = [one for one in found.of if one.verdict not in UNJUDGED]
    assert len(tested) >= TESTED[edge][cost is None]
    whys = [one.why for one in found.of if one.verdict is UNTESTED]
    assert not [why for why in whys if not re.search(REASONS, why)]
    json.dumps(found.records(), allow_nan=False)
    for one in found.of:
        assert bool(one.why) == (one.verdict in UNJUDGED), one
    assert found.frame["claim"].n_unique() == len(CLAIMS)
    assert found.note() in found.markdown() and found._repr_html_().startswith("<p>")


def test_the_target_alone_pays_no_overhead_of_a_step():
    """Its seconds are the baseline's, whatever a step of the speculative loop takes besides."""
    trace = iid(12, 40, 0.7, max_draft=20, seed=2)
    at = Evidence(trace, replace(COST, overhead_s=9.0, baseline_overhead_s=0.5))
    alone, loop = at.replay(ALONE), at.replay("autoregressive")
    np.testing.assert_array_equal(alone.total_s, loop.seconds["baseline_s"])
    assert np.all(loop.total_s > alone.total_s)


def test_why_it_cannot_be_tested():
    found = {o.claim.name: o for o in check(EDGES["no scores"](), COST).of}
    assert found["pacer_is_faster"].why == "no scores of pacer"
    assert found["head_predicts"].row()[-2] == "cannot be tested: no scores of acceptance_head"
    assert "--sampled" in found["stronger_when_greedy"].why
    why = check(EDGES["scored"](), claims=[CLAIMS["speculation_pays"]]).of[0].why
    assert why == "needs times: the trace holds none, so give a cost"
    free = replace(COST, head_s=0.0)
    why = check(EDGES["scored"](), free, claims=[CLAIMS["head_is_cheap"]]).of[0].why
    assert why == "this cost has no time of the head pacer"


def test_what_is_no_claim_and_no_name_is_refused():
    for names in ("speculation_pays", ["speculation_pays"]):
        with pytest.raises(UserError, match="claims must be a list of Claim objects"):
            check(EDGES["scored"](), claims=names)  # type: ignore[arg-type]
    pairs = [iid(4, 20, share, max_draft=4, seed=1) for share in (0.5, 0.8)]
    with pytest.raises(UserError, match="1 names for 2 drafts"):
        by_acceptance(pairs, claims=[CLAIMS["marginal_falls"]], names=["bad"])


def test_few_prompts_are_said():
    found = check(scored(0.7, 4), COST, claims=[CLAIMS["lengths_vary"]])
    assert found.of[0].why == "only 4 prompts, too few for a verdict"
    assert found.note().endswith("Only 4 prompts: the interval may be too narrow.")


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        ((2, 2), "2 prompts give no usable interval."),
        (
            (2, 3),
            "2 prompts give no usable interval. Only 3 prompts: the interval may be too narrow.",
        ),
        ((3, 11), "Only 3 to 11 prompts: intervals may be too narrow."),
        ((12, 4), "Only 4 prompts: the interval may be too narrow."),
        ((12, 40), "Intervals are over prompts."),
    ],
)
def test_few_prompts_are_said_once(prompts, said):
    parts = tuple(Part("", Estimate(1.2, 1.1, 1.3, n), ABOVE_1) for n in prompts)
    note = Findings((Finding(CLAIMS["lengths_vary"], parts, HOLDS),), "a", "b").note()
    assert note.endswith(said) and note.count("narrow") == ("narrow" in said)


def test_the_sampled_trace_is_checked():
    one = iid(6, 20, 0.7, max_draft=20, seed=3)
    sampler = traces.Sampler(1.0)
    other = iid(6, 20, 0.7, max_draft=20, seed=4, sampler=sampler)
    names = [CLAIMS["constant_can_lose"]]
    assert check(one, COST, other, names).of[0].verdict is not UNTESTED
    with pytest.raises(UserError, match="is the trace itself"):
        check(one, COST, one, names)
    with pytest.raises(UserError, match="is greedy"):
        check(one, COST, iid(6, 20, 0.7, max_draft=20, seed=5), names)
    reference = traces.load("reference")
    models = {name: getattr(reference.manifest, name) for name in ("target", "draft")}
    models["draft"] = replace(models["draft"], weights_sha256="0" * 64)
    other.manifest = replace(other.manifest, **models)
    with pytest.raises(UserError, match="is of another draft model, models/draft"):
        check(reference, None, other, names)


def test_acceptance_against_entropy_asks_for_what_it_reads():
    trace = iid(14, 40, 0.7, max_draft=8, seed=3, sampler=traces.Sampler(1.0))
    names = ("accepted", "draft_token", "target_token", "draft_entropy", "overlap")
    bare = from_arrays(
        trace.sequences.to_pydict(),
        {name: trace.positions(name) for name in names},
        {},
        max_draft=8,
        max_new_tokens=40,
        sampler=trace.sampler,
    )
    assert examine(CLAIMS["entropy_against_acceptance"], Evidence(bare)).parts


def test_a_told_part_decides_nothing():
    def told(at):
        return [Part("a", between(1.1, 1.2), ABOVE_1), Part("b", between(0, 9), None)]

    one = examine(Claim("made", "SVIP", "", "", "", "", told), Evidence(EDGES["one prompt"]()))
    assert one.verdict is HOLDS
    assert one.ours() == "a: 1.150 [1.100, 1.200]; b: 4.500 [0.000, 9.000]"


def test_printed_gain_of_the_optimal_length():
    """PACER section 3.1.2: passes with the best fixed length 9 and with γ*; Table 14's ms."""
    drafts, targets = 27423, 3047  # Table 6
    fixed_ms = drafts * 16.52 + targets * 67.31
    optimal_ms = (drafts - 4837) * 16.52 + 1150 * 67.31
    assert fixed_ms / optimal_ms == pytest.approx(1.46, abs=0.005)
    assert (drafts - 4837) / drafts == pytest.approx(0.824, abs=5e-4)
    assert 1150 / targets == pytest.approx(0.377, abs=5e-4)


def test_printed_speeds_of_pacer():
    """PACER's tokens a second by speculation's: Tables 1 and 5, and Table 3 beyond them."""
    pairs = [(32.93, 30.72), (28.57, 26.62), (19.90, 18.65), (23.77, 23.55), (21.51, 20.55)]
    pairs += [(14.50, 14.40), (39.69, 35.08), (31.07, 29.36), (19.07, 17.81), (41.80, 37.46)]
    ratios = [one / other for one, other in pairs]
    said = f"{min(ratios):.3f}–{max(ratios):.3f}; {24.20 / 21.20:.3f} (Table 3, Llama 2, HumanEval)"
    assert CLAIMS["pacer_is_faster"].printed == said


@pytest.mark.parametrize(("c", "longest"), [(4, 10), (12, 14)])
def test_windows_are_those_of_the_figure(c, longest):
    at = Evidence(iid(14, 60, 0.7, max_draft=40, seed=3), Linear(1.0, float(c)))
    tried = [part.what for part in examine(CLAIMS["window_is_ratio"], at).parts]
    assert tried == [f"γ = {k}" for k in range(1, longest + 1) if k != c]


@pytest.mark.parametrize(("trace", "name"), [("reference", "pard2"), ("smollm2", "parallel")])
def test_a_drafter_of_whole_drafts_is_known_by_its_passes(trace, name):
    found = engines.whole_draft(SimpleNamespace(trace=traces.load(trace, drafter="suffix")))
    assert found.path.name == name


def test_lookups_yield_no_whole_draft_in_a_pass(monkeypatch):
    trace = traces.load("smollm2", drafter="suffix")
    monkeypatch.setattr(type(trace), "drafters", ["prompt_lookup", "suffix"])
    with pytest.raises(Untestable, match="no drafter is attached"):
        engines.whole_draft(SimpleNamespace(trace=trace))


def test_a_load_s_interval_is_of_its_own_requests():
    """Copies of 64 are a sixteenth as many requests as copies of one."""
    found = engines.three_beat_five_at_64
    parts = getattr(found, "measure", found)(Evidence(Study("reference", "draft")))
    served = simkit.serve(
        "reference", ["static(5)", "static(3)"], "specdecode-bench:eagle", copies=[1, 64],
        engine=simkit.serving.Engine(64, extrapolate=True), requests=1024, seeds=engines.SEEDS,
    ).records()  # fmt: skip
    rows = {row["value"]: row for row in served if row["controller"] == "static(3)"}
    (part,) = (one.found for one in parts if one.what == "3 over 5 at 64")
    wide = rows[64.0]["steady_against_hi"] - rows[64.0]["steady_against_lo"]
    assert part.hi - part.lo == pytest.approx(wide, rel=0.05)
