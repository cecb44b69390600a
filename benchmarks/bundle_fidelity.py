"""Put a run of `simkit fidelity` on the reference pair into the package, for notebook 08.

    python -m benchmarks.bundle_fidelity .work/fidelity
    python -m benchmarks.bundle_fidelity    # the predictions of the bundled run anew

The log is cut to whole sequences: some tens of kB instead of megabytes. So where the fit of times
has changed, predictions are replayed under the bundled cost. Intervals of errors want the passes,
which are gone: their ends change by the prediction's factor.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq

import simkit
from analysis.fidelity import BUNDLED, FILES, Fidelity, load
from simkit.statistics.interval import ratio_interval
from traces.files import encode
from traces.outputs import write_atomic

# The run asked the PACER head of its day, which had no rotary positions; its scores are bundled.
OF_ITS_DAY = {"pacer(block=4)": "pacer(block=4, head=pacer-no-rope)"}


def bundle(folder: Path, out: Path) -> None:
    """Copy the files of a run, the log cut.

    Raises:
        LiveError: one is missing.
    """
    load(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        table = pq.read_table(folder / name)
        if name == "live.parquet":
            table = table.filter(pc.field("kind") == "sequence")
        write_atomic(out / name, encode(table)[0])


def replayed(run: Fidelity) -> pl.DataFrame:
    """The replay of the run's policies on its held-out prompts, beside what was measured there."""
    specs = [str(OF_ITS_DAY.get(spec, spec)) for spec in run.policies["policy"]]
    found = simkit.replay("reference", specs, run.cost, by="sequence").frame
    as_run = pl.col("policy").replace({now: then for then, now in OF_ITS_DAY.items()})
    return found.with_columns(as_run).join(run.measured, on=["policy", "sequence"], how="semi")


def predicted_anew(run: Fidelity) -> pl.DataFrame:
    """The run's policies with what replays predict under its cost now."""
    rows = []
    for (_, mine), row in zip(
        replayed(run).group_by("policy", maintain_order=True),
        run.policies.to_dicts(),
        strict=True,
    ):
        baseline, total, policy = mine.select("baseline_s", "total_s", "policy_s").to_numpy().T
        predicted = float(baseline.sum() / total.sum())
        low, high = ratio_interval(baseline, total, 0.95, 0)
        factor = predicted / row["predicted"]
        row |= {"predicted": predicted, "predicted_lo": low, "predicted_hi": high}
        row |= {name: (1 + row[name]) * factor - 1 for name in ("error", "error_lo", "error_hi")}
        rows.append(row | {"free": float(baseline.sum() / (total.sum() - policy.sum()))})
    return pl.DataFrame(rows, run.policies.schema)


def bundle_anew() -> None:
    """Write the bundled run's predictions anew."""
    file = BUNDLED / "fidelity.parquet"
    before = pq.read_table(file)
    table = predicted_anew(load()).to_arrow().cast(before.schema)
    write_atomic(file, encode(table.replace_schema_metadata(before.schema.metadata))[0])


if __name__ == "__main__":
    bundle(Path(sys.argv[1]), BUNDLED) if sys.argv[1:] else bundle_anew()
