"""`oncefence demo`: the whole way of a command on real parts, while things break around it."""

from pathlib import Path
from typing import Annotated, Final

import typer

from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note, say
from oncefence.domain.lookup import WAITS_SECONDS

_TIME_SCALE: Final = 0.001
_SEED: Final = 1


def demo(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="JSON lines of outbox_id, operation, subject, payload; else the shipped example.",
        ),
    ] = None,
    *,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there.")
    ] = None,
    time_scale: Annotated[
        float,
        typer.Option(min=0.0001, max=1.0, help="How much shorter waits are; no send deadline is."),
    ] = _TIME_SCALE,
    seed: Annotated[
        int, typer.Option(min=0, help="Which command of a file of yours meets which fault.")
    ] = _SEED,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Data folder of this run; else one in .oncefence."),
    ] = None,
) -> None:
    """Send the commands of FILE through faults and kills, and prove what they came to."""
    # Imported here: the other verbs need none of this and start in half the time without it.
    from oncefence.app.demo.folders import fresh_folder, named_folder  # noqa: PLC0415
    from oncefence.app.demo.report import (  # noqa: PLC0415
        check_json_file,
        print_report,
        write_json,
    )
    from oncefence.app.demo.run import read_lines, run_demo  # noqa: PLC0415
    from oncefence.app.demo.view import shown  # noqa: PLC0415
    from oncefence.app.examples import CHANGES, example  # noqa: PLC0415
    from oncefence.app.stack import Stack, stopping_in_good_order  # noqa: PLC0415

    if json is not None:
        check_json_file(json)
    lines = read_lines(example(CHANGES) if file is None else file)
    folder = fresh_folder() if keep is None else named_folder(keep)
    heading = (
        f"waits are shortened, time runs at scale {time_scale:g}: "
        f"the five looks at an unknown outcome, {sum(WAITS_SECONDS) / 3600:.1f} hours in all, "
        f"take {sum(WAITS_SECONDS) * time_scale:.0f} s"
    )
    if file is not None:
        heading += f"; faults are dealt by seed {seed}"
    try:
        with stopping_in_good_order():
            with shown(heading) as board:
                stack = Stack(folder, time_scale=time_scale, say=board.say)
                with stack:
                    report = run_demo(stack, board, lines, seed=None if file is None else seed)
                    board.say("counting is done; stopping everything")
            if json is not None:
                write_json(json, report)
            say(heading)
            print_report(report, stack)
    except KeyboardInterrupt:
        note(f"interrupted; everything is stopped, and what there is of it is kept in {folder}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not report.holds:
        raise typer.Exit(ExitCode.VIOLATIONS)
