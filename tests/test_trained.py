"""Drafters that were trained apart: accepted tokens of every start, τ, gains, verdicts."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import traces
from analysis import figures
from analysis.claims import check, claims, pard2_training
from analysis.study import MissingError, Study
from analysis.trained import DEPENDENT, INDEPENDENT, Trained, seed_factors
from traces.arms import ParallelArm
from traces.recipes.reference import arms

NAMES = [one.name for one in claims() if one.test.__module__ == pard2_training.__name__]


@pytest.fixture(scope="module")
def recording():
    return traces.load("reference")


def made(recording, chance, folder, seeds=arms.SEEDS):
    """A file of arms whose tokens are accepted one by one with a chance of their own."""
    n, tables = recording.n_positions, []
    offsets = recording.position_offsets
    left = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(n)
    for seed, arm in itertools.product(seeds, arms.EVERY):
        for mode in arm.modes:
            rng = np.random.default_rng((seed, arms.EVERY.index(arm), mode == DEPENDENT))
            ahead = rng.geometric(1 - chance(arm, mode), n) - 1
            ahead = np.minimum(np.minimum(ahead, left), arm.block).astype(np.uint8)
            found = [ahead[a:b] for a, b in itertools.pairwise(offsets)]
            tables.append(arms._table(arm, seed, mode, found))
    file = folder / "arms.parquet"
    whole = pa.concat_tables(tables)
    pq.write_table(whole.replace_schema_metadata({"trace": recording.hash}), file)
    return file


@pytest.fixture(scope="module")
def as_printed(recording, tmp_path_factory):
    """Arms that differ as the paper's do."""

    def chance(arm, mode):
        loss = {"cat": 0.08, "decay=0.8": 0.03, "decay=0.6": -0.05}.get(arm.loss, 0.0)
        features = 0.0 if mode == INDEPENDENT else {"none": 0.0, "one": 0.08, "four": 0.11}
        features = features[arm.features] if isinstance(features, dict) else features
        gate = {0.0: -0.03, 0.1: 0.0, 0.2: -0.04, 0.5: -0.06}[arm.rho]
        block = -0.06 if arm.loss == "pard" and arm.block == 16 else 0.0
        return 0.55 + loss + features + gate + block

    return made(recording, chance, tmp_path_factory.mktemp("printed"))


@pytest.fixture
def trained(recording, as_printed, monkeypatch):
    monkeypatch.setattr("traces.arms.ARMS", as_printed)
    return Trained(Study(recording))


def steps_of(ahead, offsets, longest, length):
    """The judge: accepted tokens and steps of each prompt, walked one by one."""
    found = []
    for begin, end in itertools.pairwise(offsets):
        start, accepted, steps = 1, 0, 0
        while start <= end - begin:
            a = min(ahead[begin + start - 1], length, longest - start)
            start, accepted, steps = start + a + 1, accepted + a, steps + 1
        found.append((accepted, steps))
    return np.array(found)


@pytest.mark.parametrize("length", [1, 8, 16])
def test_steps_are_those_that_a_decoder_takes(trained, recording, length):
    arm = ParallelArm("cat", "four")
    mine = trained.sums(arm, DEPENDENT, length)
    ends = recording.position_offsets, recording.max_new_tokens, length
    each = [steps_of(one.accepted, *ends) for one in trained.of(arm, DEPENDENT)]
    assert np.array_equal(mine, np.stack(each))
    total = np.sum(each, axis=(0, 1))
    assert trained.tau(arm, DEPENDENT, length).value == pytest.approx(total[0] / total[1])


def test_an_arm_gains_nothing_over_itself(trained):
    arm = ParallelArm("cat", "one"), DEPENDENT, 16
    assert trained.gain(arm, arm).value == 1.0


def test_what_was_not_trained_is_told(trained):
    with pytest.raises(MissingError, match="no drafter was trained as decay0.5-one-16"):
        trained.tau(ParallelArm("decay=0.5", "one"), DEPENDENT, 16)
    with pytest.raises(MissingError, match="drafts 8 tokens, not 16"):
        trained.tau(ParallelArm("pard", "none", block=8), INDEPENDENT, 16)


def test_another_trace_has_none(as_printed, monkeypatch):
    monkeypatch.setattr("traces.arms.ARMS", as_printed)
    with pytest.raises(MissingError, match="none were measured on this trace"):
        Trained(Study("reference-sampled"))


def test_spread_over_seeds_is_that_of_their_mean():
    """Of n seeds' resamples the variance is (n - 1) / n of it: stretched back, it is s^2 / n."""
    tau = np.exp(np.array([0.02, -0.03, 0.01]))
    sums = np.stack([1000 * tau, np.full(3, 1000.0)], 1)
    spread = np.log(seed_factors(sums, lambda s: s[..., :1] / s[..., 1:])).std()
    assert spread == pytest.approx(np.log(tau).std(ddof=1) / np.sqrt(3), rel=0.01)


def test_one_seed_has_no_spread():
    assert seed_factors(np.ones((1, 2)), lambda s: s[..., :1] / s[..., 1:]) is None


def test_seeds_widen_the_interval(recording, tmp_path, monkeypatch):
    """The same chances with each seed: little is added. Chances of their own: much."""
    widths = []
    for apart in (0.0, 0.08):

        def chance(arm, mode, apart=apart):
            return 0.6 + apart * (chance.seed - 1)

        folder = tmp_path / str(apart)
        folder.mkdir()
        tables = []
        for seed in arms.SEEDS:
            chance.seed = seed
            tables.append(pq.read_table(made(recording, chance, folder, (seed,))))
        whole = pa.concat_tables(tables).replace_schema_metadata({"trace": recording.hash})
        pq.write_table(whole, folder / "all.parquet")
        monkeypatch.setattr("traces.arms.ARMS", folder / "all.parquet")
        found = Trained(Study(recording)).tau(ParallelArm("cat", "one"), DEPENDENT, 16)
        widths.append(found.hi - found.lo)
    assert widths[1] > 2 * widths[0]


def test_claims_hold_where_arms_differ_as_printed(recording, as_printed, monkeypatch):
    monkeypatch.setattr("traces.arms.ARMS", as_printed)
    some = [one for one in claims() if one.name in NAMES]
    found = {one.claim.name: str(one.verdict) for one in check(recording, claims=some).of}
    assert found == dict.fromkeys(NAMES, "holds")


def test_claims_fail_where_arms_differ_the_other_way(recording, tmp_path, monkeypatch):
    def chance(arm, mode):
        loss = {"cat": -0.1, "pard": 0.06 if arm.features == "none" else 0.02}.get(arm.loss, 0.0)
        features = {"none": 0.1, "one": 0.06, "four": 0.0}[arm.features]
        block = 0.05 if arm.block == 16 else 0.0
        return 0.55 + loss + features + block + 0.1 * (arm.rho != 0.1)

    monkeypatch.setattr("traces.arms.ARMS", made(recording, chance, tmp_path))
    some = [one for one in claims() if one.name in NAMES]
    found = {one.claim.name: str(one.verdict) for one in check(recording, claims=some).of}
    assert found == dict.fromkeys(NAMES, "does not hold")


def test_the_figure_has_every_row_of_the_tables(recording, as_printed, monkeypatch):
    monkeypatch.setattr("traces.arms.ARMS", as_printed)
    found = figures.parallel_training(recording)
    assert found.frame["table"].value_counts().sort("table")["count"].to_list() == [4, 4, 6]
    first = found.frame.group_by("table", maintain_order=True).first()
    assert first["tau_ratio"].to_list() == first["paper"].to_list() == [1.0, 1.0, 1.0]
