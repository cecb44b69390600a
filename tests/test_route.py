"""Several drafters in one decoder, against steps and prices that are written out one by one."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import status
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_traces import Bare, tiny_traces
from test_lattice import counts

import simkit as toolkit
from simkit import costs, policies
from simkit.costs.price import StepWork
from simkit.drafters import layout_of
from simkit.drafters.route import BestOf, Route, parse
from simkit.errors import ReplayError
from simkit.policies import Outcome
from simkit.simulator.routed import routed
from traces.drafters.passes import opened
from traces.memory import from_drafts
from traces.trace import Trace

COST = costs.parse(
    "linear(draft_s=1, target_s=8, draft_per_token_s=0.25, target_per_token_s=0.125,"
    " draft_per_kv_token_s=0.0625, overhead_s=0.5)"
)
PROPOSAL_S = 0.03125
POLICIES = ("fixed(2)", "svip(h=0.4)", "heuristic(initial=2)", "oracle()", "confidence_adaptive()")


class WithProposals(costs.CostModel):
    """`COST`, in which a proposal that takes no pass is not free."""

    name = "with_proposals"

    def times(self, trace):
        found = replace(COST)
        object.__setattr__(found, "proposal", lambda: PROPOSAL_S)
        return found


@st.composite
def lookups(draw, trace: Trace, passes: str = "none", ends: bool = True) -> Trace:
    """Drafts of their own from each start of a trace, with probabilities."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    likely = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    longest = draw(st.integers(1, 6))
    rows = [
        (s, i, j, bool(rng.random() < likely), rng.random() ** 0.3)
        for s, n in enumerate(trace.sequences["n_output"].to_pylist())
        for i in range(1, n + 1)
        for j in range(1, rng.integers(0, min(longest, trace.max_new_tokens - i) + 1) + 1)
    ]
    names = ("sequence", "start", "depth", "accepted", "draft_prob_raw")
    columns = zip(*rows, strict=True) if rows else [()] * 5
    kinds = (np.int32, np.int32, np.int32, bool, np.float32)
    found = from_drafts(
        {
            "n_output": trace.sequences["n_output"].to_pylist(),
            "prompt_tokens": [[0] * n for n in trace.sequences["n_prompt"].to_pylist()],
        },
        {
            name: np.array(column, kind)
            for name, column, kind in zip(names, columns, kinds, strict=True)
        },
        max_draft=longest,
        max_new_tokens=trace.max_new_tokens,
        sampler=trace.sampler,
        draft_passes=passes,  # type: ignore[arg-type]
    )
    return Trace(replace(found.manifest, draft_ends=ends), found._source)


@st.composite
def several(draw):
    """Two lookups and a model on the same outputs."""
    trace = draw(tiny_traces())
    passes = draw(st.sampled_from(["none", "token", "draft"]))
    return [draw(lookups(trace, passes)), draw(lookups(trace)), trace]


def by_hand(choice, traces, specs, first=1):
    """Every step, straight from the words of the page on drafters.

    Returns:
        (sequence, start, who, drafted, proposed, accepted) of each.
    """
    layouts = [layout_of(trace) for trace in traces]
    rules = [policies.parse(spec) for spec in specs]
    reads = [
        layout.columns(rule.columns(trace.sampler))
        for layout, rule, trace in zip(layouts, rules, traces, strict=True)
    ]
    history: list[list] = [[] for _ in rules]  # what each policy was told, to tell it anew
    out = []
    for s, n_output in enumerate(traces[0].sequences["n_output"].to_pylist()):
        rows = [layout.sequence(read, s) for layout, read in zip(layouts, reads, strict=True)]
        for told in history:
            told.append(("begin", s))
        i = first
        while i <= n_output:
            drafts = [
                _draft(rules[k], history[k], rows[k], traces[k], i) for k in range(len(rules))
            ]
            k = _who(choice, layouts, drafts, s, i)
            drafted, proposed, accepted, seen = drafts[k]
            ended = i + accepted > n_output
            history[k] += seen
            history[k].append(("update", Outcome(drafted, proposed, accepted, ended)))
            out.append((s, i, k, drafted, proposed, accepted))
            i += accepted + 1
    return out


def _state(rule, told):
    """A policy's state, from all that it was ever told."""
    state = rule.begin(0)
    for what, value in told:
        if what == "begin":
            state = rule.begin(value) if rule.carried == "sequence" else state
        elif what == "update":
            state = rule.update(state, value)
        elif what == "limit":
            rule.limit(state, value)
        else:
            _, state = rule.trips(state, *value)
    return state


def _draft(rule, told, rows, trace, i):
    ahead = rows.ahead[i - 1]
    told_of = ahead if rule.needs_future else -1
    state = _state(rule, told)
    room = max(0, min(rule.limit(state, told_of), rule.max_draft, trace.max_new_tokens - i))
    seen, drafted = [("limit", told_of)], 0
    for row in rows.draft(i, room):
        drafted += 1
        seen.append(("trips", (drafted, row)))
        stop, state = rule.trips(state, drafted, row)
        if stop:
            break
    proposed = max(0, min(drafted, rule.proposed(state, drafted)))
    return drafted, proposed, min(proposed, ahead), seen


def _who(choice, layouts, drafts, s, i):
    last = len(layouts) - 1
    if isinstance(choice, BestOf):
        most = max(accepted for _, _, accepted, _ in drafts)
        return next(k for k in range(last + 1) if drafts[k][2] == most)
    for k in range(last):
        at = layouts[k].offsets[s] + i - 1
        length = layouts[k].recorded[at]
        chances = layouts[k].columns(("draft_prob_raw",)).starts[0][at, :length].astype(float)
        score = sum(np.prod(chances[: j + 1]) for j in range(length))
        if length >= choice.least and (choice.score is None or score >= choice.score):
            return k
    return last


CHOICES = (
    "route(a, b, own)",
    "route(a, b, own, least=3)",
    "route(b, own, score=1.5)",
    "route(a, own, least=2, policy='fixed(1)')",
    "best_of(a, b, own)",
    "best_of(b, own, policy='fixed(2)')",
)


def chosen(text, traces):
    choice = parse(text)
    there = dict(zip(("a", "b", "own"), traces, strict=True))
    return choice, [there[name] for name in choice.drafters]


@pytest.mark.parametrize("text", CHOICES)
@pytest.mark.parametrize("spec", POLICIES)
@settings(max_examples=8, deadline=None)
@given(traces=several(), first=st.sampled_from([1, 2]))
def test_steps_are_those_of_the_words(text, spec, traces, first):
    choice, there = chosen(text, traces)
    (run,) = routed(choice, there, [policies.parse(spec)], None, ("draft", "prefill")[first - 1])
    all_of_it = [f"fixed({t.max_draft}, max_draft={t.max_draft})" for t in there[:-1]]
    rules = [choice.policy] * len(all_of_it) if choice.policy else all_of_it
    expected = by_hand(choice, there, [*rules, spec], first)
    steps, _ = run.steps()
    columns = (steps.sequence, steps.start, steps.by, steps.drafted, steps.proposed, steps.accepted)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@pytest.mark.parametrize("spec", ["fixed(2)", "svip(h=0.4)", "heuristic(initial=2)"])
@settings(max_examples=8, deadline=None)
@given(traces=several(), first=st.sampled_from(["draft", "prefill"]))
def test_nobody_is_asked_for_more_than_there_is(spec, traces, first):
    """Where no proposal is long enough the last drafter's replay comes out; the tries are paid."""
    trace = traces[-1]
    policy, cost = policies.parse(spec), WithProposals()
    (run,) = routed(parse("route(b, own, least=99)"), traces[1:], [policy], cost, first)
    alone = toolkit.replay(trace, policy, cost, first_token=first).runs[0]
    assert counts(run.steps()[0]) == counts(alone.steps()[0])
    for name, values in alone.counts.items():
        np.testing.assert_array_equal(run.counts[name], values)
    for part, seconds in alone.seconds.items():
        tries = run.counts["steps"] * PROPOSAL_S if part == "draft_s" else 0.0
        np.testing.assert_allclose(run.seconds[part], seconds + tries, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(traces=several(), spec=st.sampled_from(["fixed(3)", "oracle()", "heuristic(initial=2)"]))
def test_the_best_of_several_accepts_what_the_best_one_does(traces, spec):
    """At each start at least what each drafter has from there; with stateless policies, exactly."""
    choice = parse("best_of(a, b, own)")
    (run,) = routed(choice, traces, [policies.parse(spec)])
    steps, _ = run.steps()
    row = layout_of(traces[-1]).offsets[steps.sequence] + steps.start - 1
    for trace in traces[:-1]:
        layout = layout_of(trace)
        assert (steps.accepted >= np.minimum(layout.recorded, layout.ahead)[row]).all()
    if spec == "heuristic(initial=2)":
        return
    can = np.minimum(layout_of(traces[-1]).ahead[row], traces[-1].max_new_tokens - steps.start)
    assert (steps.accepted >= (np.minimum(can, 3) if spec == "fixed(3)" else can)).all()


@pytest.mark.parametrize("text", CHOICES)
@pytest.mark.parametrize("spec", ["fixed(2)", "svip(h=0.4)"])
@settings(max_examples=10, deadline=None)
@given(traces=several(), first=st.sampled_from(["draft", "prefill"]))
def test_each_step_costs_what_it_did(text, spec, traces, first):
    """`Times.price`, the straightforward version, on what each drafter was asked in each step."""
    choice, there = chosen(text, traces)
    (run,) = routed(choice, there, [policies.parse(spec)], WithProposals(), first)
    steps, seconds = run.steps()
    np.testing.assert_allclose(
        seconds["draft_s"], _priced(choice, there, steps), rtol=1e-12, atol=1e-12
    )
    times = WithProposals().times(there[0])
    context = there[-1].sequences["n_prompt"].to_numpy()[steps.sequence] + steps.start - 1
    np.testing.assert_allclose(seconds["verify_s"], times.verify(steps.proposed + 1, context))
    for part in ("draft_s", "verify_s", "prefill_s", "overhead_s", "baseline_s"):
        added = np.bincount(steps.sequence, seconds[part], len(steps.counts))
        some = steps.counts > 0
        np.testing.assert_allclose(run.seconds[part][some], added[some], rtol=1e-12)


def _priced(choice, traces, steps):
    """Seconds of all drafting in each step."""
    times, found = WithProposals().times(traces[0]), []
    layouts = [layout_of(trace) for trace in traces]
    read: list[dict[int, list[int]]] = [{} for _ in traces]
    facts = (steps.sequence, steps.start, steps.by, steps.drafted, steps.emitted)
    for s, i, who, drafted, emitted in zip(*(x.tolist() for x in facts), strict=True):
        context, spent = int(layouts[0].n_prompt[s]) + i - 1, 0.0
        for k, trace in enumerate(traces):
            # the start of its last draft; tokens that others have kept since
            mine = read[k].setdefault(s, [steps.first - 1, 0])
            is_route = isinstance(choice, Route)
            if k == who or (is_route and k < who):
                whole = is_route and k < len(traces) - 1
                at = layouts[k].offsets[s] + i - 1
                tokens = int(layouts[k].recorded[at]) if whole else drafted
                spent += _asked(times, trace, mine, i, tokens, context)
                if tokens:
                    mine[:] = [i, 0]
            if k != who:
                mine[1] += emitted
        found.append(spent)
    return np.array(found)


def _passes(trace, mine, i, tokens, context=0):
    """Tokens of a drafter's passes, and those before each; what it has not read comes first."""
    begun, missed = mine
    return {
        "none": ([], []),
        "token": (
            [1 + missed, *[1] * (tokens - 1)],
            [context - missed, *range(context + 1, context + tokens)],
        ),
        "draft": (
            [min(trace.max_new_tokens - i, trace.max_draft) - 1 + i - begun],
            [context + 1 - (i - begun)],
        ),
    }[trace.manifest.draft_passes]


def _asked(times, trace, mine, i, tokens, context):
    """One drafter's proposal or passes in one step."""
    passes = _passes(trace, mine, i, tokens, context)
    each, behind = (np.array(part if tokens else [], np.int64) for part in passes)
    from_model = trace.manifest.draft_passes != "none"
    return float(times.price(StepWork(context, 1, each, behind, from_model=from_model)).draft_s)


class Narrow(WithProposals):
    """Samples of passes over at most three tokens by the target, two by a draft."""

    def times(self, trace):
        found = super().times(trace)
        object.__setattr__(found, "most_tokens", {"target": 3, "draft": 2}.get)
        return found


@pytest.mark.parametrize("text", CHOICES)
@settings(max_examples=20, deadline=None)
@given(traces=several(), first=st.sampled_from(["draft", "prefill"]))
def test_passes_beyond_what_was_timed_are_those_of_all_drafters(text, traces, first):
    choice, there = chosen(text, traces)
    (run,) = routed(choice, there, [policies.parse("fixed(3)")], Narrow(), first)
    steps, _ = run.steps()
    names = ["draft" if name == "own" else f"drafter {name}" for name in choice.drafters]
    widest = _widest(choice, there, steps)
    n = {name: int((widest[:, k] > 2).sum()) for k, name in enumerate(names)}
    n["target"] = int((steps.proposed + 1 > 3).sum())
    assert {one.model: one.steps for one in run.wide} == n
    said = {one.over: one.share for one in run.beyond}
    most = {"target": 3} | dict.fromkeys(names, 2)
    assert said == {
        f"{name} passes over {most[name]} tokens": pytest.approx(k / len(steps))
        for name, k in n.items()
        if k
    }


def _widest(choice, traces, steps):
    """Tokens of each drafter's widest pass in each step, (N, K)."""
    layouts, found = [layout_of(trace) for trace in traces], []
    read: list[dict[int, list[int]]] = [{} for _ in traces]
    facts = (steps.sequence, steps.start, steps.by, steps.drafted, steps.emitted)
    for s, i, who, drafted, emitted in zip(*(x.tolist() for x in facts), strict=True):
        found.append([0] * len(traces))
        for k, trace in enumerate(traces):
            mine = read[k].setdefault(s, [steps.first - 1, 0])
            is_route = isinstance(choice, Route)
            tokens = 0
            if k == who or (is_route and k < who):
                whole = is_route and k < len(traces) - 1
                at = layouts[k].offsets[s] + i - 1
                tokens = int(layouts[k].recorded[at]) if whole else drafted
            if tokens:
                found[-1][k] = max([0, *_passes(trace, mine, i, tokens)[0]])
                mine[:] = [i, 0]
            if k != who:
                mine[1] += emitted
    return np.array(found).reshape(-1, len(traces))


@pytest.mark.parametrize(
    "drafter, why",
    [
        ("route(suffix)", "takes two drafters or more"),
        ("route(suffix, suffix)", "suffix is named twice"),
        ("route(suffix, 3)", "name drafters as they were attached, or own"),
        (
            "route(suffix(), own)",
            "cannot read 'suffix(), own'; name drafters as they were attached",
        ),
        ("route(sufix, own)", "no drafter 'sufix' is attached (did you mean suffix?)"),
        ("rout(suffix, own)", "is no choice of drafters (did you mean route?)"),
        ("route(suffix, own, leats=3)", "route has no argument 'leats' (did you mean least?)"),
        ("route(suffix, own, least=0)", "least must be a whole number >= 1, not 0"),
        ("route(suffix, own, least=1:3)", "1:3 is a range; give one value here"),
        ("route(suffix, own, score=high)", "score must be a number, not high"),
        (f"route(suffix, own, score=1{'0' * 400})", "score must be a number, not 1000"),
        ("route(prompt_lookup, own, score=3)", "prompt_lookup has no probabilities to score"),
        ("route(own, suffix)", "it can only come last"),
        ("best_of(own, suffix)", "own drafts as many tokens as it is asked for: name it last"),
        ("best_of(suffix, own, least=2)", "best_of has no argument 'least'"),
        ("route(suffix, own, policy='fixd(2)')", "unknown policy 'fixd' (did you mean fixed?)"),
        ("route(suffix, own, policy='pearl(2)')", "several drafters take turns"),
        (
            "route(suffix, own, policy='svip(h=1)')",
            "svip(h=1) reads the column draft_entropy, which drafts of suffix() do not have",
        ),
    ],
)
def test_bad_input(drafter, why, capsys):
    assert status("replay", "reference", "--policy", "fixed(2)", "--drafter", drafter) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1


@pytest.mark.parametrize("name", ["sweep", "tune", "claims"])
def test_other_commands_take_one_drafter(name, capsys):
    more = [] if name == "claims" else ["--policy", "fixed(2)"]
    assert status(name, "reference", "--drafter", "route(suffix, own)", *more) == 2
    assert "route(suffix, own): name one drafter here" in capsys.readouterr().err


def test_policies_that_know_of_one_drafter_are_refused():
    with pytest.raises(policies.PolicyError, match="plans the steps of one drafter"):
        toolkit.replay("reference", {"route(suffix, own)": "prophet()"})
    with pytest.raises(policies.PolicyError, match="is fitted to one drafter's steps"):
        toolkit.replay("reference", {"route(suffix, own)": "rate_optimal()"})


def test_it_is_compared_with_its_parts(capsys):
    """In one table, with intervals, prompt by prompt; one spelling for all."""
    route = "route(suffix, own, least=3)"
    found = toolkit.replay(
        "reference",
        {"own": "fixed(5)", "suffix": "fixed(5)", "route(suffix,own,  least=3)": "fixed(5)"},
    )
    assert list(found.results) == ["own", "suffix", route]
    with_own = found.compare((route, "fixed(5)"), ("own", "fixed(5)"))
    totals = {r["drafter"]: r["total_s"] for r in found.records()}
    assert with_own.speedup == pytest.approx(totals["own"] / totals[route])
    assert with_own.speedup_lo < with_own.speedup < with_own.speedup_hi
    assert found.compare(("route(suffix,own,least=3)", "fixed(5)"), ("own", "fixed(5)")) == with_own
    assert any(
        note.startswith(f"{route}: steps by drafter under fixed(5): suffix in")
        for note in found.notes
    )
    assert any("reads the tokens of another drafter's steps" in note for note in found.notes)
    row = found.records()[2]
    parts = ("prefill_s", "draft_s", "verify_s", "policy_s", "overhead_s")
    assert row["total_s"] == pytest.approx(sum(row[part] for part in parts))
    given = ["--policy", "fixed(5)", "--format", "json", "--drafter", route]
    assert status("replay", "reference", *given) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert {"drafter": route, **printed} == row


def test_by_step_and_by_task():
    route = "best_of(suffix, own)"
    by_step = toolkit.replay("reference", {route: "fixed(3)"}, by="step").frame
    whole = toolkit.replay("reference", {route: "fixed(3)"}).records()[0]
    for name in ("steps", "drafted", "draft_passes", "accepted", "emitted", "draft_s", "total_s"):
        assert by_step[name].sum() == pytest.approx(whole[name])
    by_task = toolkit.replay("reference", {route: "fixed(3)"}, by="task").frame
    assert by_task["total_s"].sum() == pytest.approx(whole["total_s"])


@pytest.mark.parametrize("text", ["route(a, b)", "route(a, b, least=3)", "best_of(a, b)"])
def test_a_spec_is_read_back(text):
    assert str(parse(text)) == text
    assert str(parse("route(a, own, policy='fixed(2)', score=2.5, least=2)")) == (
        'route(a, own, least=2, score=2.5, policy="fixed(2)")'
    )
    with pytest.raises(ReplayError, match="policy must be a spec in quotes"):
        BestOf(("a", "b"), policy=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("passes", ["draft", "chain", "block"])
@settings(max_examples=15, deadline=None)
@given(data=st.data(), first=st.sampled_from([1, 2]), least=st.sampled_from([1, 2, 99]))
def test_a_drafter_that_reads_in_its_pass_reads_what_others_kept(passes, data, first, least):
    """Its unread tokens are those since its own last draft, whoever drafted in between."""
    trace = data.draw(tiny_traces())
    there = [data.draw(lookups(trace)), data.draw(lookups(trace, passes))]
    given_first = ("draft", "prefill")[first - 1]
    choice, cost = parse(f"route(b, own, least={least})"), WithProposals()
    (run,) = routed(choice, there, [policies.parse("fixed(2)")], cost, given_first)
    steps, seconds = run.steps()
    times, layout = cost.times(trace), layout_of(there[1])
    paid = opened(layout.paid, max_draft=layout.trace.max_draft)
    begun: dict[int, int] = {}
    for n, (s, i, who, drafted) in enumerate(
        zip(
            *(x.tolist() for x in (steps.sequence, steps.start, steps.by, steps.drafted)),
            strict=True,
        )
    ):
        context, spent = int(layout.n_prompt[s]) + i - 1, PROPOSAL_S
        if who == 1:
            unread = i - begun.get(s, first - 1)
            asked = (
                drafted
                if passes == "chain"
                else min(2, trace.max_new_tokens - i, layout.trace.max_draft)
            )
            if drafted:
                spent += times.drafts(context, np.array(asked), paid, unread).item()
                begun[s] = i
            else:
                spent += times.price(StepWork(context)).draft_s
        assert seconds["draft_s"][n] == pytest.approx(spent)
    if least == 99:
        alone = toolkit.replay(there[1], "fixed(2)", cost, first_token=given_first).runs[0]
        assert counts(steps) == counts(alone.steps()[0])
        tries = run.counts["steps"] * PROPOSAL_S
        np.testing.assert_allclose(run.seconds["draft_s"], alone.seconds["draft_s"] + tries)


class Counting:
    """Stops at every seventh token that it is asked about, over all drafts of a sequence."""

    def __init__(self):
        self.asked = 0

    def stop(self, depth, row):
        self.asked += 1
        return self.asked % 7 == 0


class Pure(Bare):
    """The same with a number for its state."""

    name = "pure"

    def begin(self, sequence):
        return (0,)

    def trips(self, state, depth, row):
        return (state[0] + 1) % 7 == 0, (state[0] + 1,)


def test_drafts_that_were_not_the_best_leave_no_trace_in_an_object():
    rule = toolkit.policy(Counting, columns=[], max_draft=16)
    found = toolkit.replay("reference", {"best_of(ngram, own)": [rule, Pure()]}).frame
    assert found["steps"][0] == found["steps"][1]


def test_a_state_that_cannot_be_copied_is_refused_where_drafts_are_tried():
    @toolkit.policy(columns=[])
    def waiting():
        while True:
            yield False

    toolkit.replay("reference", {"route(ngram, own)": waiting})
    with pytest.raises(ReplayError, match=r"^waiting: best_of tries .* \(.*generator.*\): write"):
        toolkit.replay("reference", {"best_of(ngram, own)": waiting})


def test_a_drafter_that_is_given_twice_is_refused():
    asked = {"route(ngram, own)": "fixed(1)", "route(ngram,own)": "fixed(3)"}
    with pytest.raises(ReplayError, match=r"^route\(ngram, own\) is given twice"):
        toolkit.replay("reference", asked)
