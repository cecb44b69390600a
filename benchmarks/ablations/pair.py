"""What a recorded pair is like, which explains much of where it differs from the papers' pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from analysis.stats.loops import in_loop
from benchmarks.ablations.arms import ALL
from simkit import costs
from simkit.drafters import layout_of
from simkit.policies import Oracle, Pacer
from simkit.simulator.arguments import setting
from simkit.simulator.fields import groups
from simkit.simulator.run import run
from simkit.simulator.step_costs import Charge
from traces.trace import Trace


def by_task(trace: Trace) -> Iterator[tuple[str, float, float, float, float, float]]:
    """Of each task's prompts, and of all: five numbers that speak of the length of drafts.

    They are τ of `oracle`, which accepts all it drafts; the share of its steps with 0 and with at
    most 2 tokens; the share of PACER's drafts, at its defaults, that end with the first block; and
    the share of output tokens in loops.
    """
    where = setting(trace, "linear(draft_s=1, target_s=1)", "draft")
    keys, task, n_tasks = groups(trace, "task")
    pacer = Pacer()
    best, blocks = (run(policy, *where).steps()[0] for policy in (Oracle(), pacer))
    outputs = [np.array(tokens, int) for tokens in trace.sequences["output_tokens"].to_pylist()]
    offsets = np.cumsum([0, *map(len, outputs)])
    loops = np.split(in_loop(np.concatenate(outputs), offsets), offsets[1:-1])
    for k, name in enumerate((*keys["task"].tolist(), ALL)):
        mine = (task == k) | (k == n_tasks)
        accepted, drafted = (
            best.accepted[mine[best.sequence]],
            blocks.drafted[mine[blocks.sequence]],
        )
        looped = np.concatenate([found for found, there in zip(loops, mine, strict=True) if there])
        yield (
            name,
            float(accepted.mean()),
            float((accepted == 0).mean()),
            float((accepted <= 2).mean()),
            float((drafted <= pacer.block).mean()),
            float(looped.mean()),
        )


def by_cost(trace: Trace, specs: Iterable[str]) -> Iterator[tuple[str, float, float]]:
    """Of each cost: c = T_target(1) / T_draft, and T_head / T_draft in the middle of an output."""
    layout = layout_of(trace)
    rows = trace.sequences
    middle = np.array([np.mean(rows["n_prompt"].to_numpy() + rows["n_output"].to_numpy() / 2)])
    for spec in specs:
        charge = Charge(costs.parse(spec).times(trace), layout, 1)
        draft_s = charge.times.draft(middle.round()).item()
        yield spec, charge.cost_ratio(), charge.times.head("pacer") / draft_s
