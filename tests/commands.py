"""The command, run in this process: how it ends and what it writes."""

import pytest

from simkit.cli import main


def status(*words) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def run(capsys, *words) -> tuple[int, str, str]:
    """Status, standard output and standard error."""
    capsys.readouterr()  # of what ran before
    return status(*words), *capsys.readouterr()


def refused(capsys, *words) -> str:
    """The one line on standard error of a command that ends with status 2 and prints nothing."""
    ended, out, said = run(capsys, *words)
    assert (ended, out, said.count("\n")) == (2, "", 1) and said.startswith("simkit: "), said
    return said.rstrip("\n")
