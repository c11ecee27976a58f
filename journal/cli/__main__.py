"""`python -m journal.cli`: the command where no script is installed."""

from journal.cli.root import main

main(prog_name="journal")
