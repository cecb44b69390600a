"""`python -m simkit`: the command."""

from simkit.cli import main

main()
