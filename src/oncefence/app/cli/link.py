"""`oncefence link`: which remote record a local subject is."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note, say
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.catalog.strict_json import JsonRefused, join, parse
from oncefence.domain.errors import ConfigurationRefused, Refused
from oncefence.domain.ids import OrgId
from oncefence.storage.phases.adopt_link import adopt_link

app = typer.Typer(help="Which remote record a local subject is.", no_args_is_help=True)

_MEMBERS: Final = ("object", "subject", "remote_object", "remote_id")
_LINE_BYTES_MAX: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """One link to make; `number` is its line, or 0 where it came from the options."""

    number: int
    local_object: str
    subject: str
    remote_object: str
    remote_id: str


@dataclass(eq=False)
class AdoptionRefused(Refused):
    """One line of the file, or one option, names no record."""

    number: int
    reason: str

    def __str__(self) -> str:
        return self.reason if self.number == 0 else f"line {self.number}: {self.reason}"


@app.callback()
def link() -> None:
    """Keep the noun, although it has one verb so far."""


@app.command()
def adopt(
    *,
    org: arguments.Org,
    binding: Annotated[
        str,
        typer.Option(parser=arguments.name, metavar="NAME", help="Name of a principal binding."),
    ],
    user: arguments.User = None,
    local_object: Annotated[str | None, typer.Option("--object", help="Like `lead`.")] = None,
    subject: Annotated[str | None, typer.Option(help="Which one, like `lead:1001`.")] = None,
    remote_object: Annotated[str | None, typer.Option(help="Like `contact`.")] = None,
    remote_id: Annotated[str | None, typer.Option(help="The provider's id of it.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help=f"Many at once: JSON lines of {', '.join(_MEMBERS)}."),
    ] = None,
) -> None:
    """Link local subjects to remote records that exist. The same link again changes nothing."""
    named = (local_object, subject, remote_object, remote_id)
    if file is not None:
        if any(each is not None for each in named):
            raise typer.BadParameter(
                "give either a file or the names of one link", param_hint="--file"
            )
        adoptions = _read(file)
    else:
        adoptions = iter([_adoption(0, dict(zip(_MEMBERS, named, strict=True)))])
    adopted, refused = interruptible.run(
        _adopt(read_settings(), OrgId(org), binding, user, adoptions)
    )
    say(f"{adopted} linked, {refused} refused")
    if refused:
        raise typer.Exit(ExitCode.LINES_REFUSED)


async def _adopt(
    settings: Settings,
    org: OrgId,
    binding: str,
    user: str | None,
    adoptions: Iterator[Adoption | AdoptionRefused],
) -> tuple[int, int]:
    adopted = refused = 0
    async with opened_store(settings) as engine:
        for adoption in adoptions:
            try:
                if isinstance(adoption, AdoptionRefused):
                    raise adoption
                await adopt_link(
                    engine,
                    org,
                    binding_name=binding,
                    user=user,
                    local_object=adoption.local_object,
                    subject=adoption.subject,
                    remote_object=adoption.remote_object,
                    remote_id=adoption.remote_id,
                    actor=ACTOR,
                )
                adopted += 1
            except AdoptionRefused as error:
                if error.number == 0:
                    raise
                note(str(error))
                refused += 1
            except Refused as error:
                if isinstance(adoption, AdoptionRefused) or adoption.number == 0:
                    raise
                note(f"line {adoption.number}: {error}")
                refused += 1
    return adopted, refused


def _read(path: Path) -> Iterator[Adoption | AdoptionRefused]:
    try:
        with path.open("rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise ConfigurationRefused(
            setting="--file",
            reason=f"{path} cannot be read ({error.strerror})",
            remedy="Name a readable file",
        ) from None
    if not any(line.strip() for line in lines):
        raise ConfigurationRefused(
            setting="--file",
            reason=f"{path} holds no line",
            remedy="Write one JSON object on each",
        )
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _line(number, line)


def _line(number: int, line: bytes) -> Adoption | AdoptionRefused:
    if len(line) > _LINE_BYTES_MAX:
        return AdoptionRefused(number=number, reason=f"has more than {_LINE_BYTES_MAX} bytes")
    try:
        value = parse(line, depth_max=2, exact=True)
    except JsonRefused as error:
        where = "the line" if error.where == "$" else error.where
        return AdoptionRefused(number=number, reason=f"{where} {error.reason}")
    if not isinstance(value, dict):
        return AdoptionRefused(number=number, reason="the line must be a JSON object")
    unknown = [join("", name) for name in value if name not in _MEMBERS]
    if unknown:
        reason = f"{unknown[0]} is no member of a line; those are {', '.join(_MEMBERS)}"
        return AdoptionRefused(number=number, reason=reason)
    return _adoption(number, {name: value.get(name) for name in _MEMBERS})


def _adoption(number: int, names: dict[str, object]) -> Adoption | AdoptionRefused:
    texts = []
    for member, text in names.items():
        label = member if number else f"--{member.replace('_', '-')}"
        if not isinstance(text, str):
            reason = "is missing" if text is None else "must be text"
            return AdoptionRefused(number=number, reason=f"{label} {reason}")
        problem = arguments.problem_of_identity(text)
        if problem is not None:
            return AdoptionRefused(number=number, reason=f"{label} {problem}")
        texts.append(text)
    local_object, subject, remote_object, remote_id = texts
    return Adoption(
        number=number,
        local_object=local_object,
        subject=subject,
        remote_object=remote_object,
        remote_id=remote_id,
    )
