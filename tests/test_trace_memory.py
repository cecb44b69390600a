import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces import schema
from traces.errors import TraceError
from traces.memory import from_arrays
from traces.sampler import Sampler
from traces.synthetic import iid

SETTINGS = {"max_draft": 4, "max_new_tokens": 5}


def test_what_is_left_out_is_filled_in():
    made = from_arrays(
        {"n_output": [2, 3]},
        {"accepted": [True, False, True, True, False], "target_token": [5, 6, 7, 8, 9]},
        {"sequence": [0, 1], "position": [2, 3], "depth": [1, 1]},
        eos_token_ids=(6,),
        **SETTINGS,
    )
    assert made.positions("sequence").tolist() == [0, 0, 1, 1, 1]
    assert made.positions("position").tolist() == [1, 2, 1, 2, 3]
    assert made.positions("accepted").dtype == bool
    assert made.positions("target_token").dtype == np.int32
    assert made.sequences.schema.equals(schema.SEQUENCES)
    rows = made.sequences.to_pylist()
    assert [row["output_tokens"] for row in rows] == [[5, 6], [7, 8, 9]]
    assert [row["finish_reason"] for row in rows] == ["eos", "length"]
    assert [row["prompt_tokens"] for row in rows] == [[], []]
    assert made.branch_offsets.tolist() == [0, 0, 1, 1, 1, 2]
    assert made.sampler.greedy and made.path is None and made.latency() is None
    assert (made.n_sequences, made.n_positions, made.n_branch_rows) == (2, 5, 2)
    assert not made.has("positions", "overlap") and made.has("branches", "depth")
    with pytest.raises(TraceError, match="positions: column overlap is not in this trace"):
        made.positions("overlap")


def test_columns_may_be_made_on_demand():
    calls = []

    def overlap():
        calls.append(1)
        return np.ones(2)

    made = from_arrays({"n_output": [2]}, {"overlap": overlap}, {}, **SETTINGS)
    assert made.has("positions", "overlap") and not calls
    assert made.positions("overlap") is made.positions("overlap")
    assert made.positions("overlap").dtype == np.float32 and calls == [1]
    assert made.n_branch_rows == 0


def test_arrays_are_read_only_and_the_callers_are_left_alone():
    mine = np.zeros(2, np.float32)
    made = from_arrays({"n_output": [2]}, {"overlap": mine}, {}, **SETTINGS)
    with pytest.raises(ValueError, match="read-only"):
        made.positions("overlap")[0] = 1
    mine[0] = 1


@pytest.mark.parametrize(
    ("sequences", "positions", "message"),
    [
        ({"n_output": [2]}, {"overlap": [1.0]}, r"positions: column overlap has shape \(1,\)"),
        (
            {"n_output": [2]},
            {"draft_token": [1.5, 2.0]},
            "column draft_token is float64, not int32",
        ),
        ({"n_output": [2]}, {"color": [1, 2]}, "positions: unknown column color"),
        ({"n_output": [1, 1], "sequence": [1, 0]}, {}, "sequences: the keys must ascend"),
        ({"n_output": [1, 1], "sequence": [1]}, {}, "sequences: the keys must ascend"),
    ],
)
def test_columns_that_do_not_fit(sequences, positions, message):
    with pytest.raises(TraceError, match=message):
        from_arrays(sequences, positions, {}, **SETTINGS)


def test_hash_tells_contents_apart():
    def made(overlap, **more):
        return from_arrays({"n_output": [2]}, {"overlap": overlap}, {}, **SETTINGS, **more)

    hashes = [made([0, 1]), made([0, 1]), made([1, 1]), made([0, 1], eos_token_ids=(3,))]
    assert [trace.hash == hashes[0].hash for trace in hashes] == [True, True, False, False]


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(0, 5),
    length=st.integers(1, 9),
    accept=st.sampled_from([0.0, 0.5, 1.0]),
    max_draft=st.integers(1, 12),
    sampler=st.sampled_from([Sampler(), Sampler(temperature=1.0)]),
    eos_prob=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 9),
)
def test_shapes_of_synthetic_traces(n, length, accept, max_draft, sampler, eos_prob, seed):
    made = iid(
        n, length, accept, max_draft=max_draft, seed=seed, sampler=sampler, eos_prob=eos_prob
    )
    for name in schema.POSITIONS.names:
        assert made.positions(name).shape == (made.n_positions,)
    for name in schema.BRANCHES.names:
        assert made.branches(name).shape == (made.n_branch_rows,)
    assert made.branch_offsets[-1] == made.n_branch_rows
    if not eos_prob:
        assert made.n_positions == n * length
        left = np.clip(length - 1 - made.positions("position"), 0, max_draft - 1)
        expected = np.where(made.positions("accepted"), 0, left)
        np.testing.assert_array_equal(np.diff(made.branch_offsets), expected)


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=1.0)])
def test_law_of_synthetic_acceptance(sampler):
    made = iid(200, 500, 0.7, max_draft=3, seed=0, sampler=sampler)
    accepted = made.positions("accepted").astype(float)
    deviation = np.sqrt(0.7 * 0.3 / accepted.size)
    assert abs(accepted.mean() - 0.7) < 4 * deviation
    lag = np.corrcoef(accepted[1:], accepted[:-1])[0, 1]
    assert abs(lag) < 4 / np.sqrt(accepted.size)
    for name in ("draft_entropy", "draft_prob_raw", "overlap"):
        correlation = np.corrcoef(made.positions(name), accepted)[0, 1]
        assert correlation < -0.3 if name.endswith("entropy") else correlation > 0.3


def test_a_synthetic_column_does_not_depend_on_what_was_asked_before():
    first, second = (iid(5, 30, 0.5, max_draft=4, seed=7, eos_prob=0.05) for _ in range(2))
    names = schema.POSITIONS.names
    for name in names:
        first.positions(name)
    for name in reversed(names):
        np.testing.assert_array_equal(second.positions(name), first.positions(name))
    assert first.hash == second.hash != iid(5, 30, 0.5, max_draft=4, seed=8).hash


def test_bad_arguments():
    for accept, more in ((1.5, {}), (0.5, {"eos_prob": 1.0}), (0.5, {"vocab_size": 2})):
        with pytest.raises(ValueError, match="accept_prob in"):
            iid(1, 1, accept, max_draft=1, seed=0, **more)
