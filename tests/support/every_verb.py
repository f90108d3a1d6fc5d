"""Loads every verb of the program, for processes that are forked from the one that loads this."""

from oncefence.app.cli.program import program

program(())
