"""
How a verb of an operator speaks to the doors, and shows what they answer.

    document = ask(lambda doors: doors.get("work", {"org": org}))
    show(document, json=json, as_text=_print)
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.screen import show_json
from oncefence.app.cli.store import read_settings
from oncefence.app.operator_client import Document, OperatorClient
from oncefence.domain.operator import EVERY_ORG, fault_of_note


def note_text(text: str) -> str:
    """The note of an act."""
    fault = fault_of_note(text)
    if fault is not None:
        raise typer.BadParameter(f"the note {fault}")
    return text


def org_or_all(text: str) -> str:
    """An org, or `*` for what is of every org at once."""
    return text if text == EVERY_ORG else arguments.name(text)


Note = Annotated[
    str,
    typer.Option("--note", parser=note_text, metavar="TEXT", help="Why; kept in the audit."),
]
ExpectedVersion = Annotated[
    str,
    typer.Option(
        "--expected-version",
        metavar="V",
        help="Its version as you looked at it; refused if it has moved since.",
    ),
]


def ask(conversation: Callable[[OperatorClient], Awaitable[Document]]) -> Document:
    """
    What the doors at ONCEFENCE_DOORS answer to the operator of ONCEFENCE_OPERATOR_TOKEN.

    Raises:
        ConfigurationRefused: One of the two is not set, or cannot be.
        OperatorRefused, DoorUnavailable, ActUnanswered: What the client raises.
    """
    settings = read_settings()
    url, token = settings.doors, settings.operator_token

    async def speak() -> Document:
        async with OperatorClient(url, token) as client:
            return await conversation(client)

    return interruptible.run(speak())


def show(document: Document, *, json: bool, as_text: Callable[[Document], None]) -> None:
    """Print the whole document for machines, or what `as_text` makes of it for people."""
    if json:
        show_json(document)
    else:
        as_text(document)
