"""What is replayed, and what the papers print for it.

Sources: "PACER: Blockwise Pre-verification for Speculative Decoding with Adaptive Length" and
"Acceptance-guided adaptive speculative decoding for efficient large language model inference".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

ALL = "all"  # prompts of every task
VANILLA = "target alone"  # in place of a spec: the baseline of every speedup
MEASURED, DEEPSEEK, LLAMA = "measured", "pacer:deepseek-1.3b-33b", "pacer:llama2-7b-70b"
FREE_HEAD = f"{DEEPSEEK}(head_s=0)"  # its 1.81 ms are those of PACER's layer


class Printed(NamedTuple):
    """What a paper prints for an arm; τ as the paper counts it, see `Ablation.bonus`."""

    tokens_per_s: float | None = None
    speedup: float | None = None
    tau: float | None = None

    @property
    def speed(self) -> float | None:
        """The number that says which arm is faster."""
        return self.speedup if self.tokens_per_s is None else self.tokens_per_s


UNPRINTED = Printed()


@dataclass(frozen=True)
class Arm:
    """One row of a table.

    Attributes:
        label: of the row.
        policy: spec at the paper's settings; None leaves the row out there.
        family: spec with ranges: what the arm is about is pinned, the rest is to be tuned; None
            leaves the row out of the tuned table.
        against: label of the row that it is compared with, None for none.
        printed: by the paper.
        claim: 1 if the paper has the arm faster than that row, -1 if slower, 0 if equally fast,
            None if it does not say.
    """

    label: str
    policy: str | None
    family: str | None
    against: str | None = None
    printed: Printed = UNPRINTED
    claim: int | None = None

    def spec(self, tuned: bool) -> str | None:
        """What is replayed, or tuned."""
        return self.family if tuned else self.policy


@dataclass(frozen=True)
class Ablation:
    """A table or a figure of a paper.

    Attributes:
        name: for `--only`.
        title: what it varies.
        source: paper and table.
        costs: specs of times to replay under: the trace's own, and those of the paper's pair, or of
            another where it prints none.
        bonus: whether the paper's τ counts tokens a step (a + 1), not accepted ones (a).
        arms: by the task whose prompts are replayed, "all" for all.
    """

    name: str
    title: str
    source: str
    costs: tuple[str, ...]
    bonus: bool
    arms: Mapping[str, Sequence[Arm]]


# PACER. Its text stops below t, its Algorithm 1 at <= t; a score is never exactly t here.

HUMANEVAL = {"block": 4, "threshold": 0.7, "growth": 1.05}  # Table 10, DeepSeek 1.3B/33B
GSM8K = {"block": 4, "threshold": 0.65, "growth": 1.05}  # the same
LLAMA_HUMANEVAL = {"block": 4, "threshold": 0.65, "growth": 1.02}  # Table 10, Llama 2 7B/70B
# Where the arguments are tuned that an arm does not pin.
FREE = {"block": "1:7", "threshold": "0.05:0.95:0.05", "growth": "1.0:1.09:0.03"}
FIXED = "fixed(0:20)"


def _pacer(
    label: str,
    settings: Mapping[str, float],
    against: str | None,
    printed: Printed = UNPRINTED,
    **pinned: str | float,
) -> Arm:
    """The policy at some settings, but for what is pinned."""
    policy, family = (_spec("pacer", {**base, **pinned}) for base in (settings, FREE))
    return Arm(label, policy, family, against, printed)


def _spec(name: str, arguments: Mapping[str, str | float]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


def _claimed(arms: Sequence[Arm]) -> list[Arm]:
    """The arms with the claims that the printed speeds make."""
    speed = {arm.label: arm.printed.speed for arm in arms}

    def claim(arm: Arm) -> int | None:
        mine, other = speed[arm.label], speed[arm.against] if arm.against else None
        return None if mine is None or other is None else (mine > other) - (mine < other)

    return [replace(arm, claim=claim(arm)) for arm in arms]


def _table_5(settings: Mapping[str, float], length: int, printed: Sequence[Printed]) -> list[Arm]:
    """Arms of Table 5; `length` is that of plain speculation, Table 6's draft ÷ target passes."""
    vanilla, plain, full, no_position, no_growth = printed
    return _claimed(
        [
            Arm("vanilla", VANILLA, VANILLA, None, vanilla),
            Arm("speculative", f"fixed({length})", FIXED, "vanilla", plain),
            _pacer("PACER", settings, "speculative", full),
            _pacer("w/o pos-emb", settings, "PACER", no_position, head="pacer-no-position"),
            _pacer("w/o growth-factor", settings, "PACER", no_growth, growth=1.0),
        ]
    )


_ON_HUMANEVAL = _table_5(
    HUMANEVAL,
    9,
    [
        Printed(18.11, 1.00),
        Printed(37.46, 2.07, 7.38),
        Printed(41.80, 2.31, 9.67),
        Printed(39.99, 2.21, 8.83),
        Printed(40.36, 2.23, 9.71),
    ],
)
_ON_GSM8K = _table_5(
    GSM8K,
    8,
    [
        Printed(18.25, 1.00),
        Printed(35.08, 1.94, 5.87),
        Printed(39.69, 2.17, 7.23),
        Printed(37.48, 2.05, 7.19),
        Printed(37.84, 2.07, 7.46),
    ],
)
_CRITERIA = _claimed(
    [
        _pacer("mean", HUMANEVAL, None, Printed(41.80, None, 9.67)),
        _pacer("any", HUMANEVAL, "mean", Printed(38.96, None, 8.70), criterion="any"),
        _pacer("last", HUMANEVAL, "mean", Printed(40.11, None, 9.34), criterion="last"),
    ]
)
_ATTENTION = _claimed(
    [
        _pacer("full context", LLAMA_HUMANEVAL, None, Printed(24.20, None, 7.46)),
        *(
            _pacer(
                f"local {scope}",
                LLAMA_HUMANEVAL,
                "full context",
                Printed(tokens_per_s, None, tau),
                head=f"pacer-local-{scope}",
            )
            for scope, tokens_per_s, tau in (("block", 22.29, 5.32), ("draft", 22.58, 5.45))
        ),
    ]
)


def _sweep(argument: str, best: float, speeds: Mapping[float, float | None]) -> list[Arm]:
    """Arms of one argument, each against the value that the paper finds best."""
    name = {"block": "b", "growth": "ρ", "threshold": "t"}[argument]
    return _claimed(
        [
            _pacer(
                f"{name} = {value:g}",
                HUMANEVAL,
                None if value == best else f"{name} = {best:g}",
                Printed(tokens_per_s),
                **{argument: value},
            )
            for value, tokens_per_s in speeds.items()
        ]
    )


_BLOCKS: dict[float, float | None] = dict(
    enumerate((30.00, 38.07, 39.28, 41.80, 38.95, 38.85, 37.21), 1)
)
_GROWTHS: dict[float, float | None] = {
    round(1 + k / 100, 2): speed
    for k, speed in enumerate(
        (40.05, 40.12, 40.40, 40.57, 40.73, 41.80, 41.60, 40.52, 39.48, 39.37)
    )
}
_PRINTED_THRESHOLDS = {
    0.50: 37.64,
    0.55: 38.09,
    0.60: 40.34,
    0.65: 39.89,
    0.70: 41.80,
    0.75: 40.44,
    0.80: 39.93,
}
_THRESHOLDS: dict[float, float | None] = {
    **dict.fromkeys((0.1, 0.2, 0.3, 0.4)),  # ours: another head's optimum may lie elsewhere
    **_PRINTED_THRESHOLDS,
    0.90: None,
}


# The acceptance head. Figure 2 shows bars without numbers, and its text says which are higher.

K_MAX = (5, 6, 7)
_H = "0.05:0.95:0.05"  # where h is tuned
# Table 1, Vicuna 7B, T = 0, the mean of four tasks: "ours", and EAGLE-2 for the same without head.
_WITH, _WITHOUT = Printed(None, 2.468, 4.30), Printed(None, 2.437, 4.31)


def _head(label: str, h: float | str, k: int, tuned: str | None, against: str) -> Arm:
    policy = _spec("acceptance_head", {"h": h, "max_draft": k})
    return Arm(label, policy, tuned, against)


def _figure_2(means: bool) -> list[Arm]:
    """With and without the head; `means` are the arms over all tasks, to which Table 1's belong."""
    h, both = _spec("acceptance_head", {"h": _H, "max_draft": 6}), (_WITHOUT, _WITH)
    without, with_head = both if means else (UNPRINTED, UNPRINTED)
    return [
        Arm("w/o head", "fixed(6)", "fixed(6)", None, without),
        replace(_head("with head", 0.95, 6, h, "w/o head"), printed=with_head, claim=1),
        _head("with head, h by eq. 12", "cost", 6, None, "w/o head"),
        Arm("w/o head, best K", None, FIXED),
        Arm(
            "with head, best K",
            None,
            _spec("acceptance_head", {"h": _H, "max_draft": "1:20"}),
            "w/o head, best K",
        ),
    ]


def _h_sweep() -> list[Arm]:
    """The paper's nine settings, and a wider range; `claim` is that of Figure 2."""
    arms = [Arm(f"w/o head, K {k}", f"fixed({k})", None) for k in K_MAX]
    for h in (0.94, 0.95, 0.96, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, "cost"):
        for k in K_MAX:
            arm = _head(f"h = {h}, K {k}", h, k, None, f"w/o head, K {k}")
            arms.append(replace(arm, claim=1) if h in (0.94, 0.95, 0.96) else arm)
    return arms


def _everywhere(arms: Sequence[Arm]) -> dict[str, Sequence[Arm]]:
    """The paper's task is code; all tasks together give more prompts."""
    return {"code": arms, ALL: arms}


_PACER, _DEEPSEEK = "PACER paper", "HumanEval, DeepSeek-Coder 1.3B/33B"

ABLATIONS = (
    Ablation(
        "table-5",
        "position embedding and growth factor",
        f"{_PACER}, Table 5: code beside HumanEval, math beside GSM8K; DeepSeek-Coder 1.3B/33B",
        (MEASURED, DEEPSEEK),
        False,
        {"code": _ON_HUMANEVAL, "math": _ON_GSM8K, ALL: _ON_HUMANEVAL},
    ),
    Ablation(
        "table-7",
        "halting criterion",
        f"{_PACER}, Table 7: {_DEEPSEEK}",
        (MEASURED, DEEPSEEK),
        False,
        _everywhere(_CRITERIA),
    ),
    Ablation(
        "table-8",
        "what the head attends to",
        f"{_PACER}, Table 8: its numbers are those of Table 3, HumanEval, Llama 2 7B/70B",
        (MEASURED, LLAMA),
        False,
        _everywhere(_ATTENTION),
    ),
    Ablation(
        "table-11",
        "block size b",
        f"{_PACER}, Table 11: {_DEEPSEEK}",
        (MEASURED, DEEPSEEK),
        False,
        _everywhere(_sweep("block", 4, _BLOCKS)),
    ),
    Ablation(
        "table-12",
        "growth factor ρ",
        f"{_PACER}, Table 12: {_DEEPSEEK}",
        (MEASURED, DEEPSEEK),
        False,
        _everywhere(_sweep("growth", 1.05, _GROWTHS)),
    ),
    Ablation(
        "table-13",
        "threshold t",
        f"{_PACER}, Table 13: {_DEEPSEEK}",
        (MEASURED, DEEPSEEK),
        False,
        _everywhere(_sweep("threshold", 0.7, _THRESHOLDS)),
    ),
    Ablation(
        "figure-2",
        "with and without the acceptance head, K_max = 6",
        "acceptance-head paper, Figure 2 (bars without numbers); printed: Table 1, Vicuna 7B,"
        " T = 0, mean of four tasks, EAGLE-2 for the row without the head",
        (MEASURED, DEEPSEEK, FREE_HEAD),
        True,
        {
            **{task: _figure_2(False) for task in ("code", "prose", "math", "german")},
            ALL: _figure_2(True),
        },
    ),
    Ablation(
        "h-sweep",
        "threshold h and longest draft K",
        "acceptance-head paper, section 3.1: h 0.94–0.96, K_max 5–7, no table is printed",
        (MEASURED, DEEPSEEK, FREE_HEAD),
        True,
        {ALL: _h_sweep()},
    ),
)
