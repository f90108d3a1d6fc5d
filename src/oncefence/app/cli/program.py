"""The verbs as one program, and the one place where an error becomes a message and an exit code."""

import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Final

import typer

from oncefence.app.cli import (
    audit,
    binding,
    catalog,
    demo,
    dlq,
    doctor,
    link,
    migrate,
    operator,
    pauses,
    process,
    runtime,
    show,
    submit,
    up,
    views,
    work,
)
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note
from oncefence.domain.errors import OncefenceError, StoreUnavailable

NAME: Final = "oncefence"
_FRAMES_MAX: Final = 8

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
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("migrate")(migrate.migrate)
app.command("worker")(process.worker)
app.command("serve")(process.serve)
app.add_typer(runtime.app, name="runtime")
app.add_typer(binding.app, name="binding")
app.add_typer(link.app, name="link")
app.add_typer(catalog.app, name="catalog")
app.command("submit")(submit.submit)
app.command("show")(show.show)
app.add_typer(audit.app, name="audit")
pauses.add_to(work.app)
app.add_typer(work.app, name="work")
app.add_typer(dlq.app, name="dlq")
app.add_typer(operator.app, name="operator")
app.add_typer(views.app, name="views")
app.command("doctor")(doctor.doctor)


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
        code = app(args=arguments, prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _refuse_usage(error)
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
