"""Change files of a trace and sign it anew, as a wrong recorder would have written it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces import files, parquet, signature
from traces.errors import UserError
from traces.finding import DRAFTERS
from traces.manifest import MANIFEST, SIGNATURE, Manifest

_FACTS = b"simkit"  # in the metadata of scores, see `traces.scores`
_SEALED = ("latency.parquet", "live.parquet")

Manifests = dict[str, Any]


class Edit:
    """A folder's tables and manifest; nothing is on the disk before `write`.

    Attributes:
        folder: of a trace, or of a drafter that is attached to one.
        manifest: the fields of its manifest, without the signature.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = unsigned(folder)
        self._tables: dict[str, pa.Table] = {}

    def names(self, table: str) -> list[str]:
        """The files of a sharded table."""
        return sorted(name for name in self.manifest["files"] if name.startswith(f"{table}/"))

    def table(self, name: str) -> pa.Table:
        """A file's table, as it is by now."""
        if name not in self._tables:
            self._tables[name] = pq.read_table(self.folder / name)
        return self._tables[name]

    def column(self, name: str, column: str) -> np.ndarray:
        """A column, to look at."""
        return self.table(name)[column].to_numpy()

    def put(self, name: str, column: str, values: Mapping[int, Any]) -> None:
        """Change values of a column, by their rows."""
        table = self.table(name)
        found = table[column].to_pylist()
        for row, value in values.items():
            found[row] = value
        place, field = table.schema.get_field_index(column), table.schema.field(column)
        self._tables[name] = table.set_column(place, field, pa.array(found, field.type))

    def fill(self, name: str, column: str, value: Any) -> None:
        """Give all rows of a column one value."""
        self.put(name, column, dict.fromkeys(range(self.table(name).num_rows), value))

    def take(self, name: str, rows: Any) -> None:
        """Keep these rows, in this order."""
        self._tables[name] = self.table(name).take(pa.array(np.asarray(rows, np.int64)))

    def drop(self, begin: str) -> None:
        """Take away the files whose names begin so."""
        for name in [name for name in self.manifest["files"] if name.startswith(begin)]:
            (self.folder / name).unlink()
            del self.manifest["files"][name]

    def write(
        self, hashed: bool = True, sealed: bool = True, signed: bool = True, tied: bool = True
    ) -> None:
        """Write what was changed, list it, and sign everything that depends on it.

        Args:
            hashed: whether the new files' hashes are listed, not the old ones.
            sealed: whether timing samples get a digest that fits.
            signed: whether the manifest gets a signature that fits, not the old one.
            tied: whether scores and attached drafters say that they belong to the new content.
        """
        for name, table in self._tables.items():
            if name in _SEALED and sealed:
                table = parquet.sealed(table)
            data, info = files.encode(table)
            (self.folder / name).write_bytes(data)
            old = self.manifest["files"][name]
            self.manifest["files"][name] = asdict(info) | (
                {} if hashed else {"sha256": old["sha256"]}
            )
        sign(self.folder, self.manifest, signed)
        if signed and tied:
            sign_dependants(self.folder)


def unsigned(folder: Path) -> Manifests:
    """The fields of a manifest but for its signature."""
    data = json.loads((folder / MANIFEST).read_text())
    del data[SIGNATURE]
    return data


def sign(folder: Path, data: Manifests, signed: bool = True) -> None:
    """Write a manifest with a signature that fits, or with the one that was there."""
    old = json.loads((folder / MANIFEST).read_text())[SIGNATURE]
    text = json.dumps({**data, SIGNATURE: signature.digest(data) if signed else old}, indent=1)
    (folder / MANIFEST).write_text(text)


def sign_dependants(folder: Path) -> None:
    """Tie scores and attached drafters to the recording as it is by now."""
    try:
        content = Manifest.from_json((folder / MANIFEST).read_text()).content_hash()
    except UserError:
        return  # nothing can be tied to what cannot be read
    data = unsigned(folder)
    for name in [name for name in data["files"] if name.startswith("scores/")]:
        table = pq.read_table(folder / name)
        facts = json.loads(table.schema.metadata[_FACTS]) | {"trace": content}
        table = table.replace_schema_metadata({_FACTS: json.dumps(facts, sort_keys=True)})
        encoded, info = files.encode(table)
        (folder / name).write_bytes(encoded)
        data["files"][name] = asdict(info)
    sign(folder, data)
    for drafter in sorted(folder.glob(f"{DRAFTERS}/*")):
        sign(drafter, unsigned(drafter) | {"attached_to": content})
        sign_dependants(drafter)


Change = Callable[[Any, Edit], None]
"""Takes a `random.Random` and the edit that it makes."""
