"""
Providers (L1 packs) and tenants' choices (L2 bindings) as validated data.

Read `definitions.py` and `bindings.py` for what may be written, `view.py` for what a command
keeps of it, `freeze.py`, `answers.py` and `lookup.py` for what that view then does.
"""
