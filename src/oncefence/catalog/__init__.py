"""
Providers (L1 packs) and tenants' choices (L2 bindings) as validated data.

Read `definitions.py`, `tables.py` and `bindings.py` for what may be written, `view.py` and
`operations.py` for what a command keeps of it, `freeze.py`, `answers.py`, `lookup.py` and
`creates.py` for what that then does. What no single key shows is in `checks.py` and beside it.
"""
