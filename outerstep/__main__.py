"""`python -m outerstep` is the same as the `outerstep` command."""

from outerstep.cli import main

main()
