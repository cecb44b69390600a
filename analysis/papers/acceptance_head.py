"""Acceptance-guided adaptive speculative decoding for efficient large language model inference.

τ is tokens a step, the target's own among them. It names the target q and the draft p. Three of
Table 1's means are not the mean of their rows: Llama 2 7B with the head at T = 0 (2.755, which is
13B's, where its rows give 2.507), and two of T = 1, EAGLE on Llama 2 13B (2.001, rows 2.386) and
EAGLE-2 on Vicuna 13B (2.472, rows 2.480).
"""

from __future__ import annotations

from statistics import fmean

from analysis.papers.printed import PaperTable, Printed, ends, spec

THRESHOLD, K_MAX = 0.95, 6  # section 3.1 sweeps h 0.94-0.96, K_max 5-7
SWEPT_H, SWEPT_K = (0.94, 0.95, 0.96), (5, 6, 7)
WITHOUT = f"fixed({K_MAX})"
TASKS = ("Natural Questions", "CNN/DM", "Alpaca", "MT-bench")
# Table 1: temperature, model: speedups of the four tasks and their τ, of EAGLE-2 and with the head
_T1 = {
    (0, "Vicuna 13B"): (
        ((2.360, 2.457, 2.873, 3.016), (3.64, 4.27, 4.50, 4.84)),
        ((2.410, 2.490, 2.890, 3.025), (3.60, 4.19, 4.40, 4.83)),
    ),
    (0, "Vicuna 7B"): (
        ((2.185, 2.210, 2.593, 2.763), (3.71, 4.07, 4.61, 4.85)),
        ((2.195, 2.238, 2.663, 2.775), (3.75, 4.02, 4.62, 4.80)),
    ),
    (0, "Llama 2 13B"): (
        ((2.633, 2.570, 2.902, 2.917), (4.14, 4.29, 4.54, 4.68)),
        ((2.660, 2.580, 2.878, 2.903), (3.90, 4.00, 4.16, 4.39)),
    ),
    (0, "Llama 2 7B"): (
        ((2.443, 2.265, 2.655, 2.680), (4.17, 4.08, 4.56, 4.52)),
        ((2.448, 2.280, 2.615, 2.683), (4.01, 3.94, 4.32, 4.38)),
    ),
    (1, "Vicuna 13B"): (
        ((2.218, 2.353, 2.588, 2.760), (3.48, 3.90, 4.16, 4.21)),
        ((2.273, 2.375, 2.593, 2.768), (3.35, 3.87, 4.12, 4.20)),
    ),
    (1, "Vicuna 7B"): (
        ((1.995, 2.033, 2.340, 2.400), (3.37, 3.69, 3.78, 4.12)),
        ((2.013, 2.038, 2.343, 2.470), (3.25, 3.66, 3.75, 4.01)),
    ),
    (1, "Llama 2 13B"): (
        ((2.498, 2.413, 2.690, 2.753), (4.05, 4.20, 4.39, 4.54)),
        ((2.513, 2.423, 2.693, 2.713), (3.82, 3.94, 4.08, 4.18)),
    ),
    (1, "Llama 2 7B"): (
        ((2.298, 2.228, 2.534, 2.567), (4.00, 3.98, 4.33, 4.23)),
        ((2.381, 2.230, 2.538, 2.520), (3.95, 3.80, 4.18, 4.13)),
    ),
}
_METHODS = ("EAGLE-2", "with head")
# The means are those of the four tasks, so that no misprinted one is copied.
MEANS = {
    (temperature, model): PaperTable(
        "acceptance head Table 1",
        f"mean of four tasks, {model}, T = {temperature}",
        {
            method: Printed(speedup=fmean(speeds), tau=fmean(taus))
            for method, (speeds, taus) in zip(_METHODS, rows, strict=True)
        },
    )
    for (temperature, model), rows in _T1.items()
}
PRINTED_MEAN = PaperTable(
    "acceptance head Table 1",
    "mean, Vicuna 7B, T = 0",
    {
        "EAGLE-2": Printed(speedup=2.437, tau=4.31),
        "with head": Printed(speedup=2.468, tau=4.30),
    },
)


def policy(**other: object) -> str:
    """The head at h = 0.95 and K_max = 6, but for what is given."""
    return spec("acceptance_head", **{"h": THRESHOLD, "max_draft": K_MAX, **other})


def gains() -> tuple[tuple[float, float], tuple[float, float]]:
    """The least and the greatest of the head's speed, and of its τ, over those without it."""
    speeds = [table.speed("with head", "EAGLE-2") for table in MEANS.values()]
    taus = [table.tau("with head", "EAGLE-2") for table in MEANS.values()]
    return ends(speeds), ends(taus)
