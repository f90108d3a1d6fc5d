"""`oncefence up`: a whole deployment on loopback, until Ctrl-C."""

from pathlib import Path
from typing import Annotated, Final

import typer

_DATA: Final = Path(".oncefence") / "up"


def up(
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Where everything is kept.")] = _DATA,
    time_scale: Annotated[
        float | None,
        typer.Option(
            min=0.0001, max=1.0, help="How much shorter waits are; else as this folder had it."
        ),
    ] = None,
) -> None:
    """Run PostgreSQL, Temporal, a worker with its doors and the simulated provider."""
    # Imported here: the other verbs need none of this and start in half the time without it.
    from oncefence.app.stack import Stack, stopping_in_good_order  # noqa: PLC0415
    from oncefence.app.until_stopped import run_until_stopped  # noqa: PLC0415

    with stopping_in_good_order():
        run_until_stopped(Stack(data, time_scale=time_scale, say=_tell))


def _tell(step: str) -> None:
    from oncefence.app.cli.screen import note  # noqa: PLC0415

    note(step)
