"""The columns of a trace's files: names, dtypes and what each one means."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

SCHEMA_VERSION = 1

_KEY = {"sequence": pa.int32(), "position": pa.int32()}
_VERDICT = {"draft_token": pa.int32(), "target_token": pa.int32(), "accepted": pa.bool_()}

# Read off one (p, q) pair of distributions; nats, raw means temperature 1 without top-k and top-p.
DRAFT_STATISTICS = (
    "draft_prob",  # processed q of the draft token
    "draft_prob_raw",
    "draft_entropy",  # H(q), raw
    "draft_top1_prob",  # raw
    "draft_top2_prob",  # raw: the second likeliest token
    "draft_top10_mass",  # raw: summed probability of the ten likeliest tokens
)
TARGET_STATISTICS = (
    "accept_prob",  # min(1, p/q) of the draft token, processed
    "target_prob",  # processed p of the draft token
    "target_prob_raw",
    "target_entropy",  # H(p), raw
    "cross_entropy",  # H(q, p) = -sum q log p, raw
    "overlap",  # sum min(p, q), raw
    "overlap_processed",
    "target_top1_prob",  # raw
)


def _fields(*groups: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(k, v, nullable=False) for group in groups for k, v in group.items()])


def _floats(names: tuple[str, ...]) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, pa.float32())


POSITIONS = _fields(
    _KEY,
    _VERDICT,
    _floats(DRAFT_STATISTICS),
    _floats(TARGET_STATISTICS),
    _floats(("target_token_prob_raw",)),  # raw p of the output token
)
BRANCHES = _fields(
    _KEY,
    {"depth": pa.int32(), "draft_token": pa.int32()},
    _floats(DRAFT_STATISTICS),
)
# With --branch-target the target's view of the branch tokens is there too.
BRANCHES_WITH_TARGET = _fields(
    _KEY,
    {"depth": pa.int32()},
    _VERDICT,
    _floats(DRAFT_STATISTICS),
    _floats(TARGET_STATISTICS),
)
HIDDEN = _fields(_KEY, {"depth": pa.int32()})
# The draft from each start, where drafts from different starts share nothing.
_LATTICE = _fields(
    {"sequence": pa.int32(), "start": pa.int32(), "depth": pa.int32(), "accepted": pa.bool_()}
)
LATTICE_COLUMNS = tuple(name for name in POSITIONS.names if name not in (*_KEY, "accepted"))
# The nodes of the draft tree from each start; node 0 is its root, the last known token.
TREE = _fields(
    {
        "sequence": pa.int32(),
        "start": pa.int32(),
        "node": pa.int32(),
        "parent": pa.int16(),  # -1 of a root
        "depth": pa.int16(),  # 0 of a root
        "rank": pa.int16(),  # among its siblings, 0 is the likeliest
        "token": pa.int32(),
        "log_prob": pa.float32(),  # of the token behind its parent, raw; nats, 0 of a root
        "on_path": pa.bool_(),  # whether it and all before it are the output's tokens
        "draft_entropy": pa.float32(),  # of what the draft says behind it, nats; NaN of a leaf
        "draft_top1_prob": pa.float32(),
    }
)
# In which round each output token is accepted where children are drawn without replacement; 0: in
# none of those that were told apart.
ROUNDS = _fields(_KEY, {"round": pa.int16()})
# What the target says alone, where no drafter was recorded with it.
_TARGET = _fields(_KEY, {"target_token": pa.int32()})
TARGET_COLUMNS = ("target_entropy", "target_top1_prob", "target_token_prob_raw")
# The steps of an engine's log, of which no tokens are known.
LOG = _fields(
    {
        "sequence": pa.int32(),
        "step": pa.int32(),  # 1-based, of those that drafted
        "drafted": pa.int32(),
        "accepted": pa.int32(),
    }
)
# What both models say behind mixed texts, in which some of an output's tokens are the draft's own.
MIXED = _fields(
    _KEY,
    {
        "token": pa.int32(),  # of the mixed text
        "from_draft": pa.bool_(),  # whether it is the draft's own, else the output's
    },
    _VERDICT,
    _floats(DRAFT_STATISTICS),
    _floats(TARGET_STATISTICS),
)
# Tables whose rows have one wide column besides, see `with_state`; a trace may have them.
WITH_STATE = {"hidden": HIDDEN, "mixed": MIXED, "experts": HIDDEN}
SEQUENCES = pa.schema(
    [
        pa.field("sequence", pa.int32(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("task", pa.string()),
        pa.field("prompt_text", pa.string()),
        pa.field("prompt_tokens", pa.list_(pa.int32()), nullable=False),
        pa.field("output_tokens", pa.list_(pa.int32()), nullable=False),
        pa.field("n_prompt", pa.int32(), nullable=False),
        pa.field("n_output", pa.int32(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),  # FINISH_REASONS
    ]
)
FINISH_REASONS = ("eos", "length", "unknown")
"""Of outputs; only those of another program may leave it unknown."""

LATENCY = _fields(
    {
        # draft, target, proposal (of a drafter without passes), head:NAME, policy:NAME, overhead,
        # …; control:X is X timed again, draw:X is X of prompts drawn anew, `repeat` the number of
        # the draw
        "component": pa.string(),
        "tokens_in": pa.int32(),
        "context_len": pa.int32(),  # tokens already in the cache; 0 is a prefill
        "batch_size": pa.int32(),
        "seconds": pa.float64(),
        "dtype": pa.string(),
        "device": pa.string(),
        "engine": pa.string(),  # eager, compiled or cuda_graph
        "repeat": pa.int32(),
    }
)
# Real speculative decoding, one forward pass, decision or step a row.
LIVE = _fields(
    {
        "run": pa.int32(),  # which arm; one policy may be two arms
        "round": pa.int32(),
        "policy": pa.string(),  # its spec; "baseline": the target alone
        "sequence": pa.int32(),
        "step": pa.int32(),  # 1-based; 0 is what comes before the first step
        "start": pa.int32(),  # position of the step's first token
        "accepted": pa.int32(),  # of the step
        # prefill, draft, verify, policy, head; step and sequence: all that passed from begin to end
        "kind": pa.string(),
        "component": pa.string(),  # draft, target, policy:NAME, head:NAME; "" of step and sequence
        "depth": pa.int32(),  # of the drafted token, else 0; of a step: how many were drafted
        "tokens_in": pa.int32(),  # of a step or sequence: how many came out
        "context_len": pa.int32(),  # tokens already in the cache
        "batch_size": pa.int32(),
        "seconds": pa.float64(),
    }
)


STATISTICS = (*DRAFT_STATISTICS, *TARGET_STATISTICS, "target_token_prob_raw")
"""All numbers of a row that are no token, key or verdict."""


def with_few(table: pa.Schema, statistics: Sequence[str]) -> pa.Schema:
    """A table with these of its statistics alone."""
    left_out = set(STATISTICS) - set(statistics)
    return pa.schema([field for field in table if field.name not in left_out])


def state_name(table: str) -> str:
    """The wide column of a table of `WITH_STATE`."""
    return "experts" if table == "experts" else "state"


def with_state(table: str, width: int) -> pa.Schema:
    """A table of `WITH_STATE`, whole: `state` is the draft's final-norm state, `width` numbers.

    It is the state from which q of the row's key was computed: its input is the token before. In
    "hidden", depth 0 is on the path, 1 and on in a branch; positions 0, -1, … reach back into the
    prompt.

    `experts` has `width` bytes: to which experts the target routed the token before, from which it
    computed p of the row's key (`traces.manifest.ExpertsInfo` has the layers and their bits). Its
    keys are those of rows, and those of p behind the last token: position n + 1 behind an output
    that ends before T_max, and one depth more in each branch, which has depth 1 wherever a draft
    token is rejected before T_max. Position 0 has all experts that the prompt's tokens read.
    """
    name, state = state_name(table), pa.list_(pa.field("element", pa.float16(), False), width)
    kind = pa.binary(width) if table == "experts" else state
    return WITH_STATE[table].append(pa.field(name, kind, nullable=False))


def target(columns: Sequence[str] = TARGET_COLUMNS) -> pa.Schema:
    """The rows of a target that was recorded alone, with these columns beyond key and token."""
    return pa.schema([*_TARGET, *(POSITIONS.field(name) for name in columns)])


def lattice(columns: Sequence[str] = LATTICE_COLUMNS) -> pa.Schema:
    """A lattice with these columns, some of `LATTICE_COLUMNS`, beyond its key and `accepted`.

    `accepted` means what it does in positions up to the first rejection of a draft, and nothing
    behind it.
    """
    return pa.schema([*_LATTICE, *(POSITIONS.field(name) for name in columns)])
