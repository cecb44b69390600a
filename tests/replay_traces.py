"""Small traces with every corner in them, and a replay that reads them row by row."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from simkit import costs, policies
from simkit.drafters.path import PathLayout
from simkit.policies import Outcome, Policy, Sequential, Setting
from simkit.simulator.step_costs import Charge
from traces import scores
from traces.memory import from_arrays
from traces.sampler import Sampler
from traces.schema import DRAFT_STATISTICS
from traces.synthetic import iid
from traces.trace import Trace

EOS = 0
SEQUENTIAL = [name for name in policies.names() if issubclass(policies.get(name), Sequential)]
COST = costs.Linear(draft_s=1.0, target_s=4.0, target_per_token_s=0.25)
ROW_HEADS = ("acceptance_head", "specdecpp")
START_HEADS = ("pacer",)


class Table(Sequential):
    """Drafts of these lengths, by their starts from `first` on, whatever their tokens are."""

    name = "table"
    looks = False  # type: ignore[assignment]
    max_draft = 40

    def __init__(self, lengths, first=1):
        self.lengths, self.first = lengths, first

    def columns(self, sampler):
        return ()

    def begin(self, sequence):
        return (self.first,)

    def limit(self, state, ahead):
        return self.lengths[state[0] - 1]

    def trips(self, state, depth, row):
        return False, state

    def update(self, state, outcome):
        return (state[0] + outcome.accepted + 1,)


def bare_trace() -> Trace:
    """Nothing but acceptance and one probability."""
    whole = iid(4, 20, 0.5, max_draft=4, seed=0)
    names = ("accepted", "draft_token", "target_token", "accept_prob")
    columns = {name: whole.positions(name) for name in names}
    rows = whole.sequences.to_pydict()
    return from_arrays(rows, columns, {}, max_draft=4, max_new_tokens=20)


def bound(
    policy: Policy | str, trace: Trace, first: int = 1, cost: costs.CostModel = COST
) -> Policy:
    """A policy fitted to the trace, and to the cost if it wants one."""
    policy = policies.parse(policy) if isinstance(policy, str) else policy
    layout = PathLayout(trace)
    return policy.bind(Setting(layout, Charge(cost.times(trace), layout, first), first))


def holds(policy: Policy | str, trace: Trace) -> bool:
    """Whether the rule holds under the trace's sampler."""
    try:
        (policies.parse(policy) if isinstance(policy, str) else policy).columns(trace.sampler)
    except policies.PolicyError:
        return False
    return True


def with_scores(trace: Trace, seed: int = 0) -> Trace:
    """The same trace with made-up scores of every head."""
    rng = np.random.default_rng(seed)
    n, branch = trace.n_positions, trace.n_branch_rows
    for head in ROW_HEADS:
        made = scores.RowScores(rng.random(n) ** 0.3, rng.random(branch) ** 0.3)
        trace = scores.attach(trace, head, made)
    layout = PathLayout(trace)
    end = np.repeat(layout.offsets[1:], layout.n_output)
    m = np.arange(n) + layout.ahead
    size = np.append(np.diff(layout.branch), 0)[np.where(m < end, m, -1)]
    depth = np.arange(trace.max_new_tokens)
    recorded = depth < (layout.ahead + (m < end) + size)[:, None]
    for head in START_HEADS:
        values = np.where(recorded, rng.random(recorded.shape) ** 0.3, np.nan)
        trace = scores.attach(trace, head, scores.StartScores(values.astype(np.float32)))
    return trace


def build(
    rows: list[list[tuple[int, int]]],
    *,
    t_max: int,
    max_draft: int,
    branch_tokens=lambda s, m: (),
    values=lambda count: np.zeros(count),
    sampler: Sampler | None = None,
    n_prompt: int = 3,
    tasks: list[str] | None = None,
    latency=None,
    scored: bool = True,
) -> Trace:
    """A trace from (draft token, output token) pairs, one list for each sequence.

    A position is accepted if its two tokens are equal. `branch_tokens(s, m)` are drafted behind
    the rejection at m; the list is repeated and cut as a recording would cut it.
    """
    positions = [pair for sequence in rows for pair in sequence]
    keys, tokens = [], []
    for s, sequence in enumerate(rows):
        for m, (draft, target) in enumerate(sequence, start=1):
            if draft == target or draft == EOS:
                continue
            drawn = list(branch_tokens(s, m)) or [1]
            for depth in range(1, min(max_draft - 1, t_max - 1 - m) + 1):
                keys.append((s, m, depth))
                tokens.append(drawn[(depth - 1) % len(drawn)])
                if tokens[-1] == EOS:
                    break
    key_columns = np.array(keys, np.int32).reshape(-1, 3).T
    features = values(len(positions) + len(tokens)).astype(np.float32)
    path = {name: features[: len(positions)] for name in DRAFT_STATISTICS}
    off_path = {name: features[len(positions) :] for name in DRAFT_STATISTICS}
    draft, target = np.array(positions, np.int32).reshape(-1, 2).T
    sequences = {"n_output": [len(r) for r in rows], "prompt_tokens": [[0] * n_prompt] * len(rows)}
    trace = from_arrays(
        sequences | ({"task": tasks} if tasks else {}),
        {"draft_token": draft, "target_token": target, "accepted": draft == target, **path},
        {
            **dict(zip(("sequence", "position", "depth"), key_columns, strict=True)),
            "draft_token": np.array(tokens, np.int32),
            **off_path,
        },
        max_draft=max_draft,
        max_new_tokens=t_max,
        eos_token_ids=(EOS,),
        sampler=sampler,
        latency=latency,
    )
    return with_scores(trace) if scored else trace


@st.composite
def tiny_traces(draw: st.DrawFn, whole: bool = True) -> Trace:
    """Up to four sequences of up to nine tokens; `whole` leaves no draft cut at Γ."""
    t_max = draw(st.integers(1, 9))
    max_draft = t_max if whole else draw(st.integers(1, 4))
    accept = draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    eos = draw(st.sampled_from([0.0, 0.15, 0.5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def token() -> int:
        return EOS if rng.random() < eos else int(rng.integers(1, 4))

    def sequence() -> list[tuple[int, int]]:
        out: list[tuple[int, int]] = []
        while len(out) < t_max and (not out or out[-1][1] != EOS):
            y = token()
            x = y if rng.random() < accept else token()
            out.append((x, y))
        return out

    return build(
        [sequence() for _ in range(draw(st.integers(1, 4)))],
        t_max=t_max,
        max_draft=max_draft,
        branch_tokens=lambda s, m: [token() for _ in range(9)],
        values=lambda count: rng.random(count) ** 2,
        sampler=Sampler(temperature=draw(st.sampled_from([0.0, 1.0]))),
    )


def steps_by_hand(trace: Trace, policy: Sequential, first: int = 1) -> list[tuple[int, ...]]:
    """Every step, straight from the design's words.

    Returns:
        (sequence, start, drafted, proposed, accepted) of each.
    """
    path = _by_key(trace, "positions", ("sequence", "position"), _columns(policy, trace))
    branch = _by_key(trace, "branches", ("sequence", "position", "depth"), _columns(policy, trace))
    scored = _scores(trace, policy)
    out = []
    state = policy.begin(0)
    for index, info in enumerate(trace.sequences.to_pylist()):
        s, n_output = info["sequence"], info["n_output"]
        if policy.carried == "sequence":
            state = policy.begin(index)
        i = first
        while i <= n_output:
            m = i
            while m <= n_output and path[s, m]["accepted"]:
                m += 1
            state, drafted = _draft(trace, policy, state, path, branch, scored, s, i, m, n_output)
            proposed = policy.proposed(state, drafted)
            accepted = min(proposed, m - i)
            eos = accepted > 0 and path[s, i + accepted - 1]["draft_token"] == EOS
            state = policy.update(state, Outcome(drafted, proposed, accepted, eos))
            out.append((s, i, drafted, proposed, accepted))
            i += accepted if eos else accepted + 1
            if eos:
                break
    return out


def _draft(trace, policy, state, path, branch, scored, s, i, m, n_output):
    longest = policy.limit(state, m - i if policy.needs_future else -1)
    drafted = 0
    while drafted < min(longest, trace.max_new_tokens - i):
        at = i + drafted
        off = at - m if at > min(m, n_output) else 0
        row = branch.get((s, m, off)) if off else path[s, at]
        if row is None:
            raise LookupError((s, i, drafted + 1))
        drafted += 1
        row = row | {
            name: table[
                (s, i, drafted)
                if name in map("score:{}".format, START_HEADS)
                else (s, m if off else at, off)
            ]
            for name, table in scored.items()
        }
        values = tuple(row[name] for name in policy.columns(trace.sampler))
        stop, state = policy.trips(state, drafted, values)
        if stop or row["draft_token"] == EOS:
            break
    return state, drafted


def _columns(policy: Policy, trace: Trace) -> tuple[str, ...]:
    names = policy.columns(trace.sampler)
    return (*(name for name in names if not name.startswith("score:")), "accepted")


def _scores(trace: Trace, policy: Policy) -> dict[str, dict]:
    """Each score that the policy reads, by its key."""
    out = {}
    for name in policy.columns(trace.sampler):
        if name.startswith("score:"):
            table = trace.extra(scores.file_name(name.removeprefix("score:")))
            *keys, score = (column.to_pylist() for column in table.columns)
            out[name] = dict(zip(zip(*keys, strict=True), score, strict=True))
    return out


def _by_key(trace: Trace, table: str, key: tuple[str, ...], columns: tuple[str, ...]) -> dict:
    names = ("draft_token", *(c for c in columns if trace.has(table, c)))
    keys = zip(*(trace.column(table, name).tolist() for name in key), strict=True)
    rows = zip(*(trace.column(table, name).tolist() for name in names), strict=True)
    return {k: dict(zip(names, row, strict=True)) for k, row in zip(keys, rows, strict=True)}


class Bare(Sequential):
    """Drafts as much as it may, without columns or state: for rules that differ in one method."""

    name, max_draft = "bare", 16

    def __str__(self):
        return self.name

    def columns(self, sampler):
        return ()

    def begin(self, sequence):
        return ()

    def limit(self, state, ahead):
        return self.max_draft

    def trips(self, state, depth, row):
        return False, state

    def update(self, state, outcome):
        return state
