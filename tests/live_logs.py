"""Logs of live runs on a made-up machine, whose times are those of a cost."""

import numpy as np

from simkit import costs, fidelity
from simkit.drafters.path import PathLayout
from simkit.fidelity.run import jobs_of
from simkit.live.log import LiveLog, LiveRow
from simkit.live.settings import Step
from simkit.policies import NumericPolicy
from simkit.policies.base import never
from simkit.steps import interpreted
from traces.synthetic import iid

COST = costs.Linear(
    draft_s=1e-3,
    target_s=8e-3,
    draft_per_kv_token_s=1e-6,
    target_per_token_s=2e-4,
    target_per_kv_token_s=5e-6,
    draft_per_token_s=1e-5,
    overhead_s=2e-4,
    baseline_overhead_s=1e-5,
    policy_s=1e-4,
)
TESTED = ("fixed(1)", "fixed(5)", "svip(h=0.4)", "confidence")


def run(trace, plan, times, slow=None, first_s=0.0, noise=0.0, first=1):
    """The log that `simkit.fidelity.measure` would write if passes took exactly these times.

    `slow` multiplies the seconds of some arms, by number; `first_s` is what a step's first draft
    pass takes on top; `noise` is the standard deviation by which whole sequences are off; `first`
    is the position of the first step, 2 where the prompt's pass emits a token.
    """
    layout, rng = PathLayout(trace), np.random.default_rng(0)
    log = LiveLog(None, {"dtype": "float32", "device": "made up"})
    arms = {job.sequence: job.arms for job in jobs_of(trace, plan)}  # sequences are indices here
    for round_ in range(plan.rounds):
        for number, arm in enumerate(plan.arms):
            decoded = (
                baseline(layout, first)
                if arm.policy is None
                else speculative(layout, arm.policy, first)
            )
            for index, steps in enumerate(decoded):
                if number not in arms.get(index, ()):
                    continue
                factor = (slow or {}).get(number, 1.0) * np.exp(noise * rng.normal())
                rows = spans(int(layout.n_prompt[index]), steps, arm.policy, times, factor, first_s)
                sequence = trace.sequences["sequence"][index].as_py()
                log.add(number, round_, arm.name, sequence, rows)
    return log.table()


def baseline(layout, first):
    lengths = layout.n_output.tolist()
    return [[(Step(i, 0, 0, 0), 1) for i in range(first, n + 1)] for n in lengths]


def speculative(layout, policy, first):
    steps = interpreted.walk(policy, layout, first)
    columns = (steps.start, steps.proposed, steps.drafted, steps.accepted)
    rows = [Step(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    both = list(zip(rows, steps.emitted.tolist(), strict=True))
    return [both[a:b] for a, b in zip(steps.offsets[:-1], steps.offsets[1:], strict=True)]


def looks(policy):
    return isinstance(policy, NumericPolicy) and policy.slots.trips is not never


def spans(n_prompt, steps, policy, times, factor, first_s):
    """The rows of one sequence."""
    rows, total = [], 0.0

    def add(step, start, accepted, kind, component, depth, tokens, context, seconds):
        rows.append(
            LiveRow(
                step, start, accepted, kind, component, depth, tokens, context, 1, seconds * factor
            )
        )
        return seconds

    def prefill(step, model):
        seconds = float(times.prefill(model, np.array([n_prompt]))[0])
        return add(step, 1, 0, "prefill", model, 0, n_prompt, 0, seconds)

    spent = prefill(0, "target")
    total += add(0, 1, 0, "step", "", 0, 0, 0, spent)
    drafts = any(step.drafted for step, _ in steps)
    for number, (step, emitted) in enumerate(steps, 1):
        place = (number, step.start, step.accepted)
        context = n_prompt + step.start - 1
        spent = prefill(number, "draft") if number == 1 and drafts else 0.0
        for depth in range(1, step.drafted + 1):
            at = context + depth - 1
            seconds = float(times.draft(np.array([at]))[0]) + (first_s if depth == 1 else 0.0)
            spent += add(*place, "draft", "draft", depth, 1, at, seconds)
            if looks(policy):
                name = f"policy:{policy.name}"
                spent += add(*place, "policy", name, depth, 0, 0, times.policy(policy.name))
        size = step.draft_length + 1
        model = times.verify if policy else lambda n, c: times.decode(c)
        seconds = float(model(np.array([size]), np.array([context]))[0])
        spent += add(*place, "verify", "target", 0, size, context, seconds)
        spent += times.overhead() if policy else times.baseline_overhead()
        total += add(*place, "step", "", step.drafted, emitted, 0, spent)
    add(len(steps), 1, 0, "sequence", "", 0, sum(n for _, n in steps), 0, total)
    return rows


def judged(source, plan, **machine):
    return fidelity.judge(source, run(source, plan, COST.times(source), **machine), n_refits=20)


def ruled(plan):
    jobs = jobs_of(iid(30, 4, 0.7, max_draft=4, seed=0), plan)
    return {j.sequence for j in jobs if {*plan.rules, *plan.passes} <= {*j.arms}}
