"""Put a run of `simkit fidelity` on the reference pair into the package, for notebook 08.

    python -m benchmarks.bundle_fidelity .work/fidelity

The log is cut to whole sequences: some tens of kB instead of megabytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.fidelity import BUNDLED, FILES, load
from traces.files import encode
from traces.outputs import write_atomic


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


if __name__ == "__main__":
    bundle(Path(sys.argv[1]), BUNDLED)
