"""The live side: calibration on some of a trace's prompts, the policies to test on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError, LiveError, PolicyError
from simkit.fidelity.ladder import Ladder
from simkit.fidelity.tree_ladder import TreeLadder
from simkit.heads.files import Head, check_fits
from simkit.live.deciders import check
from simkit.live.log import LiveLog
from simkit.live.rotation import Arm, Benches, LiveJob, Warm, run
from simkit.live.settings import DecoderSettings
from simkit.policies import Fixed, Policy, Sequential, Setting
from simkit.policies.base import chain_of
from simkit.simulator.arguments import FIRST
from simkit.statistics.enough import FOR_AGREEMENT
from simkit.trees.eagle2 import Eagle2
from traces import scores
from traces.conditions import Watch
from traces.manifest import ModelInfo
from traces.messages import how_many
from traces.record.header import model_info
from traces.record.pair import Pair, tokenizer_hash
from traces.same_prompts import to_deal
from traces.trace import Trace

POLICIES = (
    "fixed(1)",
    "fixed(3)",
    "fixed(5)",
    "fixed(9)",
    "svip(h=0.4)",
    "svip(h=0.8)",
    "heuristic",
    "confidence",
    "pacer",
)
"""Tested by default; none of them fits the cost."""

_RULES = 3  # calibration prompts on which the tested rules' own time is taken


FITTED: tuple[Policy, ...] = (Fixed(2), Fixed(4), Fixed(7), Ladder())
"""Whose passes the cost is fitted to."""

FITTED_TREES: tuple[Policy, ...] = (
    Eagle2(1, 4, 6),
    Eagle2(5, 3, 16),
    *(TreeLadder(turn) for turn in (0, 3, 5, 8)),
)
"""Those of trees."""


@dataclass(frozen=True)
class LivePlan:
    """Arms, by number, and who decodes which prompt.

    Arm 0 is the target alone. Arms 1 to n are the policies to test, n + 1 the first of them again;
    the rest are those whose passes the cost is fitted to.

    Attributes:
        policies: to test.
        held_out: indices of the prompts on which they are tested.
        calibration: indices of the prompts on which the cost is fitted.
        rounds: how often every prompt is decoded.
        fitted: whose passes the cost is fitted to.
    """

    policies: tuple[Policy, ...]
    held_out: tuple[int, ...]
    calibration: tuple[int, ...]
    rounds: int
    fitted: tuple[Policy, ...] = FITTED

    @property
    def arms(self) -> list[Arm]:
        """All arms; those whose passes are fitted stand last."""
        tested = [Arm(policy) for policy in self.policies]
        return [Arm(), *tested, Arm(self.policies[0]), *map(Arm, self.fitted)]

    @property
    def tested(self) -> tuple[int, ...]:
        """The arms of held-out prompts."""
        return tuple(range(len(self.policies) + 2))

    @property
    def rules(self) -> tuple[int, ...]:
        """The arms that are tested, without the control."""
        return tuple(range(1, len(self.policies) + 1))

    @property
    def passes(self) -> tuple[int, ...]:
        """The arms whose passes the cost is fitted to."""
        return (0, *range(len(self.policies) + 2, len(self.arms)))


def split(
    prompt: np.ndarray, held_out: int, calibration: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Held-out and calibration prompts, both spread evenly over a trace; they share none.

    Of a prompt that was recorded several times the first copy is taken.

    Args:
        prompt: (S,) `Trace.prompt_numbers`.
        held_out: how many to test on.
        calibration: how many to fit the cost to.

    Returns:
        Indices of sequences, ascending.

    Raises:
        LiveError: the trace has fewer prompts, or there is nothing to compare or to fit to.
    """
    total, first = held_out + calibration, np.unique(to_deal(prompt), return_index=True)[1]
    if held_out < 2 or calibration < 1:
        raise LiveError(
            f"{how_many(held_out, 'prompt')} to test on and {calibration} to calibrate: at least"
            f" 2 and 1 are needed, and {FOR_AGREEMENT} and 1 for a verdict"
        )
    if total > len(first):
        different = " different ones" if len(first) < len(prompt) else ""
        raise LiveError(
            f"{how_many(total, 'prompt is', 'prompts are')} asked for, but the trace has"
            f" {len(first)}{different}"
        )
    chosen = [int(first[k * len(first) // total]) for k in range(total)]
    fitted = {chosen[(2 * k + 1) * total // (2 * calibration)] for k in range(calibration)}
    return tuple(i for i in chosen if i not in fitted), tuple(sorted(fitted))


def check_policies(
    policies: Sequence[Policy], trace: Trace, settings: DecoderSettings, heads: Mapping[str, object]
) -> list[Sequential]:
    """The policies, if they can be tested.

    Raises:
        PolicyError: one cannot run live, is fitted to a trace, keeps state over a whole run (some
            prompts of which are left out here), or is one whose passes the cost is fitted to.
        LiveError: there is none, or T_max leaves no room for a draft.
    """
    least = FIRST[settings.first_token] + 1
    if settings.max_new_tokens < least:
        raise LiveError(
            f"max_new_tokens must be at least {least}, or nothing is drafted, not"
            f" {settings.max_new_tokens}"
        )
    if not policies:
        raise LiveError("there is no policy to test")
    chosen = []
    for policy in dict.fromkeys(policies):
        policy = chain_of(policy, "it is not tested here")
        check(policy, settings, heads)
        if policy.carried == "run":
            raise PolicyError(f"{policy} keeps state over the whole run, so it cannot be tested")
        lengths = [fitted.length for fitted in FITTED if isinstance(fitted, Fixed)]
        if isinstance(policy, Fixed) and policy.length in lengths:
            raise PolicyError(
                f"{policy} fits the cost, so it cannot be tested: give another length"
            )
        if type(policy).bind is not Policy.bind:
            setting = Setting(PathLayout(trace), None, FIRST[settings.first_token])
            if policy.bind(setting) is not policy:
                raise PolicyError(f"{policy} is fitted to a whole trace, so it cannot be tested")
        chosen.append(policy)
    return chosen


def check_heads(policies: Sequence[Policy], heads: Mapping[str, Head], trace: Trace) -> None:
    """Refuse heads that are not those whose scores a replay reads.

    Args:
        policies: that read them.
        heads: by name, those that the policies read among them.
        trace: with scores, or without any (that is the replay's complaint).

    Raises:
        HeadError: one was trained for another pair, or the trace's scores of its name are
            another's.
    """
    for name in dict.fromkeys(policy.head for policy in policies if policy.head):
        where = str(trace.path or "the trace")
        check_fits(heads[name], trace.manifest, where)
        facts = scores.facts(trace, name)
        if facts is not None and facts.get("head", {}).get("hash") != heads[name].hash:
            raise HeadError(
                f"{where} has scores of another head under the name {name}: a replay would"
                " read others than the live run; write them again with simkit score"
            )


def check_recorded(trace: Trace) -> None:
    """Refuse a trace that no live decoder can be held against.

    Raises:
        LiveError: it has no draft model, or its outputs were drawn with the target alone.
    """
    trace.manifest.drafter.refuse("live", LiveError)
    if trace.manifest.coupling == "target" and not trace.sampler.greedy:
        raise LiveError(
            f"{trace.path or 'the trace'}: its sampled outputs are the target's own draws, which a"
            " live decoder cannot repeat (coupling target): give a greedy trace"
        )


def check_pair(trace: Trace, pair: Pair) -> None:
    """Refuse a pair that is not the trace's, as far as its manifest knows.

    Sizes, parameters and vocabularies must be the same in any dtype, weights where the dtype is.

    Raises:
        LiveError: the trace was imported, or recorded with another pair.
    """
    check_recorded(trace)
    known = trace.manifest
    for name in ("target", "draft"):
        there, here = getattr(known, name), model_info(getattr(pair, name))
        if there is not None and (found := _difference(there, here)):
            raise LiveError(f"the trace was recorded with another {name} model: {found}")
    if known.vocab_size not in (None, pair.vocab_size):
        raise LiveError(
            f"the trace was recorded with another pair: its models share"
            f" {how_many(known.vocab_size, 'id')},"
            f" these {pair.vocab_size}"
        )
    if known.tokenizer_sha256 not in (None, tokenizer_hash(pair.tokenizer)):
        raise LiveError("the trace was recorded with another tokenizer")


def check_drafter(trace: Trace, network: Any) -> None:
    """Refuse a network that is not the one whose drafts a trace holds.

    Args:
        trace: to which it was attached.
        network: a feature drafter, or a draft model.

    Raises:
        LiveError: as said.
    """
    known = trace.manifest.draft
    here = network.describe() if hasattr(network, "describe") else model_info(network)
    if known is not None and (found := _difference(known, here)):
        raise LiveError(f"the trace's drafter is another: {found}")


def _difference(there: ModelInfo, here: ModelInfo) -> str | None:
    """In words, in what two models differ."""
    for name in ("architecture", "n_parameters", "vocab_size"):
        old, new = getattr(there, name), getattr(here, name)
        if old != new:
            return f"{name} is {old} there, {new} here"
    for name in sorted(there.shape.keys() & here.shape.keys()):
        if there.shape[name] != here.shape[name]:
            return f"{name} is {there.shape[name]} there, {here.shape[name]} here"
    old, new = there.weights_sha256, here.weights_sha256
    if there.dtype == here.dtype and old != new:
        return f"its weights are {old[:8]} there, {new[:8]} here"
    return None


def measure(
    trace: Trace,
    bench: Benches,
    plan: LivePlan,
    log: LiveLog,
    on_sequence: Callable[[], None],
    on_size: Callable[[float, int], None] | None = None,
) -> None:
    """Run everything into a log, calibration and test prompts in turns.

    Args:
        trace: whose prompts are decoded.
        bench: the models.
        plan: who decodes what.
        log: is told everything.
        on_sequence: called after every sequence.
        on_size: told, before anything is logged, about how many seconds all of it takes, and how
            many rows the log will have: as many a token as of the first prompt, by each arm.

    Raises:
        LiveError: memory ran out; the log has what came before.
    """
    jobs = jobs_of(trace, plan)

    def on_warm(warm: dict[int, Warm]) -> None:
        lengths = _lengths(trace, bench.settings.max_new_tokens)
        shares = {job.sequence: lengths[job.sequence] / lengths[jobs[0].sequence] for job in jobs}
        pairs = [(warm[arm], shares[job.sequence]) for job in jobs for arm in job.arms]
        if on_size is not None:
            seconds, rows = (sum(one[k] * share for one, share in pairs) for k in (0, 1))
            on_size(plan.rounds * seconds, int(plan.rounds * rows))

    run(bench, plan.arms, jobs, plan.rounds, log, on_sequence, on_warm)


def logged(
    trace: Trace,
    bench: Benches,
    plan: LivePlan,
    log: LiveLog,
    on_sequence: Callable[[], None],
    on_size: Callable[[float, int], None] | None = None,
) -> pa.Table:
    """What `measure` logs, with what else the machine did meanwhile."""
    watch = Watch()
    measure(trace, bench, plan, log, on_sequence, on_size)
    known = watch.conditions().of_models(trace.manifest.target, trace.manifest.draft)
    return known.kept_in(log.table())


def runs_of(trace: Trace, plan: LivePlan) -> int:
    """Outputs that are decoded, by all arms in all rounds."""
    return plan.rounds * sum(len(job.arms) for job in jobs_of(trace, plan))


def _lengths(trace: Trace, most: int) -> dict[int, int]:
    """Output tokens of each sequence as far as they are decoded."""
    table = trace.sequences
    pairs = zip(table["sequence"].to_pylist(), table["n_output"].to_pylist(), strict=True)
    return {number: max(1, min(n, most)) for number, n in pairs}


def jobs_of(trace: Trace, plan: LivePlan) -> list[LiveJob]:
    """Every prompt with its arms, ascending, so that calibration and test prompts alternate."""
    prompts = trace.sequences["prompt_tokens"].to_pylist()
    numbers = trace.sequences["sequence"].to_pylist()
    spread = np.linspace(0, len(plan.calibration) - 1, min(_RULES, len(plan.calibration)))
    ruled = {plan.calibration[int(k)] for k in spread}
    jobs = []
    for index in sorted((*plan.held_out, *plan.calibration)):
        arms = plan.tested
        if index in plan.calibration:
            arms = plan.passes + (plan.rules if index in ruled else ())
        jobs.append(LiveJob((prompts[index],), numbers[index], arms))
    return jobs
