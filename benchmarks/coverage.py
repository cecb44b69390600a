"""How often 95% intervals hold the truth: `python -m benchmarks.coverage`.

Makes synthetic traces of known laws, estimates each statistic on each with its interval over
prompts (2,000 resamples), and counts the intervals that hold the truth. Where the truth has no
closed form it is the same estimator's value on 20,000 prompts. The two tests are counted by how
often they find, at 5%, what is not there.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import betaln

from analysis.papers import svip
from analysis.stats import (
    Estimate,
    acceptance_length,
    binned,
    compare,
    correlation,
    depth,
    drafts,
    entropy,
    iid,
    optimal,
    reliability,
)
from analysis.stats.clusters import ratio
from benchmarks.analysis_scale import ahead
from simkit.drafters.path import PathLayout
from traces import synthetic
from traces.trace import Trace

LENGTH = 256  # T_max of the traces
GAMMA = 8
DECAY = tuple(0.9 - 0.05 * j for j in range(GAMMA))
STAY, BACK = 0.85, 0.6  # P(accepted | the one before was), P(accepted | it was not)
MIXED = 0.75, 0.1  # the prompts' acceptance probability: mean and standard deviation
SHARED, JOINT = 0.3, -0.6  # of normal scores: variance between prompts, correlation
PROMPTS_OF_TRUTH = 20_000

Found = dict[str, Estimate]
Case = Callable[[int, int], Found]


def decaying(seed: int, n: int) -> Found:
    """Acceptance that falls with depth."""
    trace = synthetic.decaying(n, LENGTH, DECAY, max_draft=GAMMA, seed=seed)
    curve = depth.by_depth(_steps(trace), GAMMA)
    return _at_depths("decaying", curve)


def mixed(seed: int, n: int) -> Found:
    """Prompts that differ: mean 0.75, standard deviation 0.1."""
    trace = synthetic.mixed(n, LENGTH, *MIXED, max_draft=GAMMA, seed=seed)
    layout = PathLayout(trace)
    accepted, offsets = trace.positions("accepted"), layout.offsets
    runs = drafts.runs(accepted, offsets)
    lengths = optimal.lengths(runs, 5)
    every = drafts.every_start(layout.ahead, offsets, LENGTH, GAMMA)
    return {
        **_at_depths("mixed", depth.by_depth(_steps(trace), GAMMA)),
        "mixed, every start: marginal 4": depth.by_depth(every, GAMMA).marginal[3],
        "mixed: share accepted": iid.run_lengths(runs).alpha,
        "mixed: dispersion of runs": iid.dispersion(runs),
        "mixed: lag-1 autocorrelation": iid.autocorrelation(accepted, offsets),
        "mixed: mean best length": lengths.mean,
        "mixed: best length <= 5": lengths.within,
    }


def markov(seed: int, n: int) -> Found:
    """Acceptance that depends on that of the token before."""
    trace = synthetic.markov(n, LENGTH, STAY, BACK, max_draft=GAMMA, seed=seed)
    layout = PathLayout(trace)
    accepted, offsets = trace.positions("accepted"), layout.offsets
    steps = _steps(trace, 5)
    per_prompt = np.diff(steps.offsets)
    emitted = np.add.reduceat(steps.accepted, steps.offsets[:-1]) + per_prompt
    return {
        "markov: lag-1 autocorrelation": iid.autocorrelation(accepted, offsets),
        "markov: dispersion of runs": iid.dispersion(drafts.runs(accepted, offsets)),
        "markov: tokens a step beyond i.i.d.": iid.excess_tokens(
            accepted, offsets, per_prompt, emitted, 5
        ),
    }


def features(seed: int, n: int) -> Found:
    """Entropies with a level of each prompt's own, acceptance that follows the overlap."""
    rng = np.random.default_rng(seed)
    offsets = np.arange(n + 1) * LENGTH
    level = np.repeat(rng.lognormal(0, 0.4, n), LENGTH)
    h = (level * rng.gamma(0.7, 1.0, n * LENGTH)).astype(np.float32)
    kl = (0.2 * h * rng.gamma(2.0, 1.0, n * LENGTH)).astype(np.float32)
    overlap = np.exp(-0.8 * np.sqrt(kl / 2)).astype(np.float32)
    accepted = rng.random(n * LENGTH) < overlap
    tight = entropy.tightness(h, h + kl, overlap, offsets, 0.08)
    spread = entropy.entropy_ratio(h, h + kl, offsets, svip.RATIO)
    judged = reliability.reliability(np.exp(-h / 2), accepted, offsets)
    whole = acceptance_length.prediction(overlap, ahead(accepted, offsets), offsets, GAMMA)
    return {
        **{f"entropy: c, to {to}": entropy.fit(h, h + kl, overlap, offsets, to) for to in FITS},
        "entropy: Pinsker over BH": tight.gain,
        "entropy: estimate below overlap": tight.below,
        "entropy: median ratio": spread.quantiles[0.5],
        "entropy: share in band": spread.in_band,
        "reliability: Brier": judged.brier,
        "reliability: ECE": judged.error,
        "binned: acceptance, highest entropy": binned.curve(h, accepted, offsets, EDGES).y[-1],
        "length: bias of the prediction": whole.bias,
        "length: correlation": whole.correlation,
    }


def normal(seed: int, n: int) -> Found:
    """Normal scores, alike within prompts."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky([[1, JOINT], [JOINT, 1]])
    own = np.repeat(rng.normal(size=(n, 2)), LENGTH, 0)
    noise = rng.normal(size=(n * LENGTH, 2))
    x, y = root @ (np.sqrt(SHARED) * own + np.sqrt(1 - SHARED) * noise).T
    offsets = np.arange(n + 1) * LENGTH
    return {
        f"correlation: {kind}": correlation.correlation(x, y, offsets, kind)
        for kind in ("spearman", "kendall")
    }


def policies(seed: int, n: int) -> Found:
    """Seconds of two policies, alike in each prompt; the one is as fast, the other 5% slower."""
    base, even, slower = _seconds(seed, n, (1.0, 1.05)).values()
    pairs = {"base": base, "even": even, "slower": slower}
    found = compare.compare(pairs, against="base")
    return {f"speed: {pair.name}": pair.speed for pair in found}


def savings(seed: int, n: int) -> Found:
    """What a policy saves, of the time and of a part of it, as the gap is; some prompts lose."""
    found: Found = {}
    for saved, noise in SAVED:
        base, mine = _seconds(seed, n, (1 - saved,), noise).values()
        part = base * np.random.default_rng([seed, 1]).uniform(0.1, 0.4, n)
        found[f"saving {saved:.0%}: of the time"] = ratio(base - mine, base)
        found[f"saving {saved:.0%}: of a part"] = ratio(base - mine, part)
    return found


SAVED = ((0.03, 0.2), (0.1, 0.1))  # in the mean, and how far prompts lie apart
FITS = ("overlap", "bound", "ratio")
EDGES = np.array([0, 0.1, 0.5, 1, 2, 4, 1e9])
CASES: tuple[Case, ...] = (
    decaying,
    mixed,
    markov,
    features,
    normal,
    policies,
    savings,
)


def truths(cases: Sequence[Case]) -> dict[str, float]:
    """What each statistic should come to; closed forms replace what a large sample gave."""
    found: dict[str, float] = {}
    for case in cases:
        for name, estimate in case(10**6, PROMPTS_OF_TRUTH).items():
            assert estimate.value is not None
            found[name] = estimate.value
    known = {
        "mixed: share accepted": MIXED[0],
        "mixed: dispersion of runs": dispersion_of_mixed(),
        "markov: lag-1 autocorrelation": STAY - BACK,
        "correlation: spearman": 6 / np.pi * np.arcsin(JOINT / 2),
        "correlation: kendall": 2 / np.pi * np.arcsin(JOINT),
        "speed: even": 1.0,
        "speed: slower": 1 / 1.05,
    }
    for j in (1, 4, 8):
        known[f"decaying: conditional {j}"] = DECAY[j - 1]
        known[f"decaying: marginal {j}"] = float(np.prod(DECAY[:j]))
    for saved, _ in SAVED:
        known[f"saving {saved:.0%}: of the time"] = saved
        known[f"saving {saved:.0%}: of a part"] = saved / 0.25
    mean, square = BACK / (1 - STAY), BACK * (1 + STAY) / (1 - STAY) ** 2
    long = (square - mean**2) / (mean + mean**2)  # of runs that no end of text cuts off
    if (name := "markov: dispersion of runs") in found:
        print(f"dispersion of endless Markov runs {long:.4f}, of {LENGTH} tokens {found[name]:.4f}")
    return {name: known.get(name, value) for name, value in found.items()}


def dispersion_of_mixed() -> float:
    """Of `mixed`'s ended runs: sums of moments of the beta distribution of α.

    A run of k accepted tokens ends at token k + 1, with α^k (1 - α), or behind one of the
    LENGTH - 1 - k rejections that leave it room, with α^k (1 - α)².
    """
    mean, spread = MIXED
    size = mean * (1 - mean) / spread**2 - 1
    a, b = size * mean, size * (1 - mean)
    k = np.arange(LENGTH)
    once, twice = (np.exp(betaln(a + k, b + i) - betaln(a, b)) for i in (1, 2))
    runs = once + (LENGTH - 1 - k) * twice
    first, second = (runs @ k**power / runs.sum() for power in (1, 2))
    return float((second - first**2) / (first + first**2))


def coverage(
    n: int, repeats: int, truth: dict[str, float], cases: Sequence[Case]
) -> dict[str, tuple[float, float]]:
    """Shares of intervals that hold the truth, and of those that could not be made."""
    held, missing = Counter[str](), Counter[str]()
    for seed in range(repeats):
        for case in cases:
            for name, estimate in case(seed, n).items():
                if estimate.lo is None or estimate.hi is None:
                    missing[name] += 1
                else:
                    held[name] += estimate.lo <= truth[name] <= estimate.hi
    return {
        name: (held[name] / max(1, repeats - missing[name]), missing[name] / repeats)
        for name in truth
    }


def errors(n: int, repeats: int) -> dict[str, float]:
    """How often tests at 5%, and intervals for all at once, find a difference that is not there."""
    wrong = Counter[str]()
    for seed in range(repeats):
        seconds = _seconds(seed, n, (1.0,) * 6)
        pairs = compare.compare(seconds, against="base")
        wrong["paired t test, one pair"] += _found(pairs[0].p_value)
        wrong["Holm, any of 6"] += any(_found(pair.adjusted) for pair in pairs)
        sides = compare.simultaneous(seconds, "base").values()
        wrong["max-t intervals, any of 6"] += any(
            not (e.lo or 0) <= 1 <= (e.hi or np.inf) for e in sides
        )
        trace = synthetic.iid(n, LENGTH, 0.8, max_draft=GAMMA, seed=seed)
        accepted, offsets = trace.positions("accepted"), trace.position_offsets
        runs = drafts.runs(accepted, offsets)
        wrong["run lengths, i.i.d. trace"] += _found(iid.run_lengths(runs).test.p_value)
        wrong["between prompts, i.i.d. trace"] += _found(
            iid.between_prompts(accepted, offsets).p_value
        )
    return {name: count / repeats for name, count in wrong.items()}


def _found(p_value: float | None) -> bool:
    return p_value is not None and p_value < 0.05


def _seconds(
    seed: int, n: int, slower: tuple[float, ...], noise: float = 0.1
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.lognormal(0, 0.5, n)
    return {
        "base": base,
        **{
            f"{i}": base * factor * rng.lognormal(-(noise**2) / 2, noise, n)
            for i, factor in enumerate(slower)
        },
    }


def _steps(trace: Trace, length: int = GAMMA) -> drafts.Drafts:
    layout = PathLayout(trace)
    return drafts.fixed_steps(layout.ahead, layout.offsets, LENGTH, length)


def _at_depths(name: str, curve: depth.DepthCurve) -> Found:
    kinds = {"conditional": curve.conditional, "marginal": curve.marginal}
    return {f"{name}: {kind} {j}": found[j - 1] for kind, found in kinds.items() for j in (1, 4, 8)}


def main() -> None:
    """Print the share of intervals that hold the truth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--prompts", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--cases", choices=[case.__name__ for case in CASES], nargs="+")
    given = parser.parse_args()
    begin = time.perf_counter()
    cases = [case for case in CASES if not given.cases or case.__name__ in given.cases]
    truth = truths(cases)
    print(f"truths {time.perf_counter() - begin:.0f} s", flush=True)
    found, wrong = {}, {}
    for n in given.prompts:
        found[n] = coverage(n, given.traces, truth, cases)
        wrong[n] = {} if given.cases else errors(n, given.traces)
        print(f"{n} prompts {time.perf_counter() - begin:.0f} s", flush=True)
    noise = 100 * np.sqrt(0.95 * 0.05 / given.traces)
    print(f"\n{given.traces} traces of {LENGTH} tokens a prompt; standard error {noise:.1f}%")
    print(f"{'% held (no interval)':44}{'truth':>9}", *(f"{n:>14}" for n in given.prompts))
    for name, value in truth.items():
        cells = (found[n][name] for n in given.prompts)
        shown = (f"{100 * held:6.1f} ({100 * gone:4.1f})" for held, gone in cells)
        print(f"{name:44}{value:9.4f}", *(f"{cell:>14}" for cell in shown))
    if not given.cases:
        print("\n% of tests at 5% that found something, where nothing is")
    for name in wrong[given.prompts[0]]:
        print(f"{name:53}", *(f"{100 * wrong[n][name]:14.1f}" for n in given.prompts))


if __name__ == "__main__":
    main()
