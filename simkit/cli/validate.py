"""`simkit validate`: check all of a trace."""

from __future__ import annotations

import typer

from simkit.cli.options import TraceName
from traces.messages import how_many


def validate(
    trace: TraceName,
) -> None:
    """Check a trace: hashes, keys, ranges. Problems go to stderr, one a line; exit status 2."""
    import sys

    from traces.loops import remarks_of
    from traces.trace import load
    from traces.validate import validate as check

    problems = check(trace)
    for problem in problems:
        print(f"simkit: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(2)
    whole = load(trace)
    noun, table = whole.manifest.drafter.noun
    counts = {
        "file": len(whole.manifest.files),
        "sequence": whole.n_sequences,
        "position": whole.n_positions,
        f"{noun} row": whole.rows(table),
    }
    found = ", ".join(how_many(n, name) for name, n in counts.items())
    if whole.drafters:
        found += f"; and what is attached: {', '.join(whole.drafters)}"
    typer.echo(f"OK: {found}")
    for line in remarks_of(whole):
        typer.echo(f"note: {line}", err=True)
