"""The verbs as one program, and the one place where an error becomes a message and an exit code."""

import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Final

import typer

from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note
from oncefence.app.cli.verbs import add_verbs
from oncefence.catalog.errors import CatalogError
from oncefence.domain.errors import OncefenceError, StoreUnavailable

NAME: Final = "oncefence"
_FRAMES_MAX: Final = 8


def program(arguments: Sequence[str]) -> typer.Typer:
    """The program, as far as these arguments need it."""
    app = typer.Typer(
        name=NAME,
        help="Changes records in other companies' systems exactly once, and says so when it cannot "
        "know. Settings come from the environment, as ONCEFENCE_*.",
        no_args_is_help=True,
        add_completion=False,
        # Its pretty tracebacks print local variables, and those hold tokens.
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    # Verbs of its own, though there may be one alone.
    app.callback()(_nothing)
    add_verbs(app, arguments)
    return app


def _nothing() -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run one verb and say how it ended.

    Whatever is refused is told in one message that says what to do, without a traceback (C12).
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character gets its escape instead of an error.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        code = program(given)(args=given, prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _refuse_usage(error)
    except CatalogError as error:
        for line in str(error).splitlines():
            note(line)
        return ExitCode.USAGE
    except OncefenceError as error:
        for line in _with_remedy(error).splitlines():
            note(line)
        return ExitCode.REFUSED
    except (KeyboardInterrupt, typer.Abort):
        note("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone. What is still buffered must not raise again at exit.
        sys.stdout = None
        return ExitCode.REFUSED
    except Exception as error:  # noqa: BLE001  # told by place, and the exit code says fault
        _tell_fault(error)
        return ExitCode.FAULT
    return code if isinstance(code, int) else ExitCode.DONE


def _with_remedy(error: OncefenceError) -> str:
    if isinstance(error, StoreUnavailable):
        return (
            f"{error}. What was asked may be done or not: see that PostgreSQL runs, "
            "and run the same command again"
        )
    return str(error)


def _refuse_usage(error: typer.TyperException) -> int:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None and message == context.get_help():
        sys.stderr.write(f"{message}\n")
        return ExitCode.USAGE
    path = NAME if context is None else context.command_path
    note(f"{message.rstrip('.')}. See `{path} --help`")
    return ExitCode.USAGE


def _tell_fault(error: Exception) -> None:
    """Class and place, never the message: a driver's holds the parameters of its statement."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    note(f"a fault of the program: {type(error).__name__} at {places}. Please report this line")
