"""How the run is shown: a live picture on a terminal, and plain lines everywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from oncefence.app.cli.screen import printable, say
from oncefence.app.demo.board import Board, is_at_rest

_STYLES: Final = {
    "accepted": "dim",
    "running": "yellow",
    "retrying": "yellow",
    "unknown": "magenta",
    "needs_attention": "bold red",
    "succeeded": "green",
    "failed": "cyan",
    "cancelled": "cyan",
}
_LINES_AROUND: Final = 11


@contextmanager
def shown(heading: str) -> Iterator[Board]:
    """A board that somebody can see."""
    console = Console(highlight=False)
    if not console.is_terminal:
        say(heading)
        yield Board(heading=heading, tell=_tell_plainly())
        return
    board = Board(heading=heading, tell=lambda _: None)
    with Live(
        get_renderable=lambda: picture(board, rows_max=max(5, console.height - _LINES_AROUND)),
        console=console,
        refresh_per_second=4,
        vertical_overflow="crop",
    ):
        yield board


def _tell_plainly() -> Callable[[str], None]:
    return say


def picture(board: Board, *, rows_max: int) -> Group:
    """The whole screen of one moment; commands that still move come first where not all fit."""
    commands = sorted(board.progress.commands, key=lambda command: command.outbox)
    if len(commands) > rows_max:
        commands.sort(key=is_at_rest)
    table = Table(show_edge=False, pad_edge=False)
    for name in ("outbox entry", "subject"):
        table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=28)
    table.add_column("execution", no_wrap=True)
    table.add_column("sends", justify="right")
    table.add_column("changes at the provider", justify="right", no_wrap=True)
    for command in commands[:rows_max]:
        changes = board.changes.get(str(command.command), 0)
        table.add_row(
            Text(printable(command.outbox)),
            Text(printable(command.subject)),
            Text(command.status, style=_STYLES.get(command.status, "")),
            Text(str(command.attempts)),
            Text(str(changes), style="bold red" if changes > 1 else ""),
        )
    lines: list[Text | Table] = [
        Text(board.heading, style="bold"),
        *(Text(f"{name}: {place}", style="dim") for name, place in board.places.items()),
        Text(f"{board.seconds:5.1f} s  {board.step}"),
    ]
    if board.kills:
        told = "; ".join(
            f"{len(kill.flights)} sends in flight, {kill.applied} of them applied"
            for kill in board.kills
        )
        lines.append(Text(f"worker killed {len(board.kills)} times: {told}", style="red"))
    if commands:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(board.statuses().items()))
        lines += [table, Text(f"{len(commands)} commands: {counts}")]
    return Group(*lines)
