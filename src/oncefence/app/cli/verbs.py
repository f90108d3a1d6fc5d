"""The verbs by name; one is loaded when it is asked for, so that none waits for the others."""

from collections.abc import Sequence
from importlib import import_module
from typing import Final

import typer

_VERBS: Final = {
    "demo": "demo",
    "up": "up",
    "migrate": "migrate",
    "worker": "process",
    "serve": "process",
    "runtime": "runtime",
    "app": "apps",
    "binding": "binding",
    "link": "link",
    "catalog": "catalog",
    "conform": "conform",
    "submit": "submit",
    "show": "show",
    "audit": "audit",
    "work": "work",
    "dlq": "dlq",
    "breaker": "breaker",
    "quota": "quota",
    "operator": "operator",
    "views": "views",
    "simulator": "simulator",
    "keys": "keys",
    "doctor": "doctor",
}
"""The module of each: its `app` where it has verbs of its own, else the function of its name."""


def add_verbs(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Give `app` the verb that the arguments name; where they name none, all of them."""
    named = next((text for text in arguments if not text.startswith("-")), None)
    for name in [named] if named in _VERBS else _VERBS:
        module = import_module(f"oncefence.app.cli.{_VERBS[name]}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
