"""What is replayed, and what the papers print for it.

Sources: "PACER: Blockwise Pre-verification for Speculative Decoding with Adaptive Length" and
"Acceptance-guided adaptive speculative decoding for efficient large language model inference".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.papers import ALONE, PaperTable, Printed, acceptance_head, pacer, spec
from analysis.papers.printed import UNPRINTED

ALL = "all"  # prompts of every task
MEASURED, DEEPSEEK, LLAMA = "measured", pacer.DEEPSEEK, pacer.LLAMA
FREE_HEAD = f"{DEEPSEEK}(head_s=0)"  # its 1.81 ms are those of PACER's layer


@dataclass(frozen=True)
class AblationArm:
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
    arms: Mapping[str, Sequence[AblationArm]]


# PACER. Its text stops below t, its Algorithm 1 at <= t; a score is never exactly t here.

# Where the arguments are tuned that an arm does not pin.
FREE = {"block": "1:7", "threshold": "0.05:0.95:0.05", "growth": "1.0:1.09:0.03"}
FIXED = "fixed(0:20)"


def _pacer(
    label: str,
    settings: Mapping[str, float],
    against: str | None,
    printed: Printed = UNPRINTED,
    **pinned: str | float,
) -> AblationArm:
    """The policy at some settings, but for what is pinned."""
    policy, family = (spec("pacer", **{**base, **pinned}) for base in (settings, FREE))
    return AblationArm(label, policy, family, against, printed)


def _claimed(arms: Sequence[AblationArm]) -> list[AblationArm]:
    """The arms with the claims that the printed speeds make."""
    speed = {arm.label: arm.printed.speed for arm in arms}

    def claim(arm: AblationArm) -> int | None:
        mine, other = speed[arm.label], speed[arm.against] if arm.against else None
        return None if mine is None or other is None else (mine > other) - (mine < other)

    return [replace(arm, claim=claim(arm)) for arm in arms]


def _table_5(settings: Mapping[str, float], table: PaperTable, length: int) -> list[AblationArm]:
    """Arms of Table 5; `length` is that of plain speculation, Table 6's draft ÷ target passes."""
    no_position, no_growth = table["w/o pos-emb"], table["w/o growth-factor"]
    return _claimed(
        [
            AblationArm("vanilla", ALONE, ALONE, None, table["Vanilla"]),
            AblationArm("speculative", f"fixed({length})", FIXED, "vanilla", table["Speculative"]),
            _pacer("PACER", settings, "speculative", table["PACER"]),
            _pacer("w/o pos-emb", settings, "PACER", no_position, head="pacer-no-position"),
            _pacer("w/o growth-factor", settings, "PACER", no_growth, growth=1.0),
        ]
    )


def _window(benchmark: str) -> int:
    plain, _ = pacer.TABLE_6[benchmark]
    return plain.draft // plain.target


_ON_HUMANEVAL = _table_5(pacer.HUMANEVAL, pacer.TABLE_5, _window("HumanEval"))
_ON_GSM8K = _table_5(pacer.GSM8K, pacer.TABLE_5_GSM8K, _window("GSM8K"))
_CRITERIA = _claimed(
    [
        _pacer("mean", pacer.HUMANEVAL, None, pacer.TABLE_7["mean"]),
        *(
            _pacer(name, pacer.HUMANEVAL, "mean", pacer.TABLE_7[name], criterion=name)
            for name in ("any", "last")
        ),
    ]
)
_ATTENTION = _claimed(
    [
        _pacer("full context", pacer.HUMANEVAL_LLAMA, None, pacer.TABLE_8["full context"]),
        *(
            _pacer(
                f"local {scope}",
                pacer.HUMANEVAL_LLAMA,
                "full context",
                pacer.TABLE_8[f"local {scope}"],
                head=f"pacer-local-{scope}",
            )
            for scope in ("block", "draft")
        ),
    ]
)


def _sweep(argument: str, best: str, printed: Mapping[str, Printed]) -> list[AblationArm]:
    """Arms of one argument, each against the value that the paper finds best."""
    name = {"block": "b", "growth": "ρ", "threshold": "t"}[argument]
    return _claimed(
        [
            _pacer(
                f"{name} = {value}",
                pacer.HUMANEVAL,
                None if value == best else f"{name} = {best}",
                row,
                **{argument: value},
            )
            for value, row in printed.items()
        ]
    )


_THRESHOLDS = {
    **dict.fromkeys(("0.1", "0.2", "0.3", "0.4"), UNPRINTED),  # ours: another head's optimum
    **pacer.TABLE_13.rows,  # may lie elsewhere
    "0.9": UNPRINTED,
}


# The acceptance head. Figure 2 shows bars without numbers, and its text says which are higher.

_H = "0.05:0.95:0.05"  # where h is tuned
_TABLE_1 = acceptance_head.PRINTED_MEAN


def _head(label: str, h: float | str, k: int, tuned: str | None, against: str) -> AblationArm:
    policy = spec("acceptance_head", h=h, max_draft=k)
    return AblationArm(label, policy, tuned, against)


def _figure_2(means: bool) -> list[AblationArm]:
    """With and without the head; `means` are the arms over all tasks, to which Table 1's belong."""
    h, both = acceptance_head.policy(h=_H), (_TABLE_1["EAGLE-2"], _TABLE_1["with head"])
    without, with_head = both if means else (UNPRINTED, UNPRINTED)
    return [
        AblationArm("w/o head", "fixed(6)", "fixed(6)", None, without),
        replace(_head("with head", 0.95, 6, h, "w/o head"), printed=with_head, claim=1),
        _head("with head, h by eq. 12", "cost", 6, None, "w/o head"),
        AblationArm("w/o head, best K", None, FIXED),
        AblationArm(
            "with head, best K",
            None,
            spec("acceptance_head", h=_H, max_draft="1:20"),
            "w/o head, best K",
        ),
    ]


def _h_sweep() -> list[AblationArm]:
    """The paper's nine settings, and a wider range; `claim` is that of Figure 2."""
    arms = [AblationArm(f"w/o head, K {k}", f"fixed({k})", None) for k in acceptance_head.SWEPT_K]
    for h in (*acceptance_head.SWEPT_H, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, "cost"):
        for k in acceptance_head.SWEPT_K:
            arm = _head(f"h = {h}, K {k}", h, k, None, f"w/o head, K {k}")
            arms.append(replace(arm, claim=1) if h in acceptance_head.SWEPT_H else arm)
    return arms


def _everywhere(arms: Sequence[AblationArm]) -> dict[str, Sequence[AblationArm]]:
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
        _everywhere(_sweep("block", "4", pacer.TABLE_11.rows)),
    ),
    Ablation(
        "table-12",
        "growth factor ρ",
        f"{_PACER}, Table 12: {_DEEPSEEK}",
        (MEASURED, DEEPSEEK),
        False,
        _everywhere(_sweep("growth", "1.05", pacer.TABLE_12.rows)),
    ),
    Ablation(
        "table-13",
        "threshold t",
        f"{_PACER}, Table 13: {_DEEPSEEK}",
        (MEASURED, DEEPSEEK),
        False,
        _everywhere(_sweep("threshold", "0.7", _THRESHOLDS)),
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
