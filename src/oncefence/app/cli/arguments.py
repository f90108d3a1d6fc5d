"""The words of the command line, judged before anything is asked of anybody."""

import re
from typing import Annotated, Final

import typer

from oncefence.domain.authorization import is_user
from oncefence.domain.command import SUBJECT_LENGTH_MAX

# The same forms that handoff keys and bindings have: a name that is made with others could
# never be used.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def name(text: str) -> str:
    """A name of an org, installation, capability or binding."""
    if not _NAME.fullmatch(text):
        raise typer.BadParameter(
            "use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or a digit"
        )
    return text


def digest(text: str) -> str:
    """A digest in canonical form."""
    if not _DIGEST.fullmatch(text):
        raise typer.BadParameter("give 64 lower-case hex digits")
    return text


def problem_of_identity(text: str) -> str | None:
    """What is wrong with the name of a local or a remote record, if anything is."""
    if not text:
        return "is empty"
    if len(text) > SUBJECT_LENGTH_MAX:
        return f"has {len(text)} characters; at most {SUBJECT_LENGTH_MAX} are taken"
    if _CONTROL.search(text):
        return "holds a control character or half of a surrogate pair"
    return None


def user(text: str) -> str:
    """A person as payloads name it."""
    if not is_user(text):
        raise typer.BadParameter("use 1 to 200 printable ASCII characters without blanks")
    return text


User = Annotated[
    str | None,
    typer.Option("--user", parser=user, metavar="USER", help="Whose, of a per-user binding."),
]
Org = Annotated[str, typer.Option("--org", parser=name, metavar="ORG", help="Whose it is.")]
Installation = Annotated[
    str, typer.Option("--installation", parser=name, metavar="NAME", help="App installation.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
