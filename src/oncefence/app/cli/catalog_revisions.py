"""
`oncefence catalog list|diff|activate`: which revisions there are, and which one is current.

Like `publish`, these act on the store itself and ask no door: whoever may publish holds the
database's setting already, and going back to an older revision must not need a running door.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.operator_call import Note
from oncefence.app.cli.screen import say, show_json, show_table
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.catalog import loader
from oncefence.catalog.differences import Difference, differences
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain.ids import InstallationId, OrgId
from oncefence.storage.phases.activate_view import Activation, activate_view
from oncefence.storage.phases.list_views import ListedView, list_views
from oncefence.storage.phases.read_revisions import ReadRevision, read_revisions

_CURRENT: Final = "current"
_DIGEST_SHOWN: Final = 12

PackFolders = Annotated[
    list[Path] | None,
    typer.Option("--pack-folder", help="Where packs are looked for first; may be repeated."),
]
ExpectedRevision = Annotated[
    int | None,
    typer.Option(
        "--expected-version",
        metavar="REVISION",
        min=0,
        help="The revision that is current as you looked at it; refused if it has moved since.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", parser=arguments.name, metavar="NAME", help="Of a binding."),
]


def add_to(app: typer.Typer) -> None:
    """Give the group of `oncefence catalog` these verbs."""
    app.command("list")(list_)
    app.command("diff")(diff)
    app.command("activate")(activate)


def list_(
    *,
    org: arguments.Org,
    installation: Annotated[
        str | None,
        typer.Option(
            "--installation", parser=arguments.name, metavar="NAME", help="This one's alone."
        ),
    ] = None,
    name: Name = None,
    json: arguments.Json = False,
) -> None:
    """List the published revisions: which is current, and how much still runs by each."""
    settings = read_settings()

    async def listed() -> Sequence[ListedView]:
        async with opened_store(settings) as engine:
            return await list_views(
                engine,
                OrgId(org),
                installation=None if installation is None else InstallationId(installation),
                name=name,
            )

    views = interruptible.run(listed())
    if json:
        show_json({"views": [asdict(each) for each in views]})
        return
    show_table(
        "Revisions",
        (
            "installation",
            "binding",
            "revision",
            "state",
            "digest",
            "published",
            "by",
            "activated",
            "by",
            "live commands",
            "other items",
        ),
        [
            (
                each.installation,
                each.name,
                each.revision,
                each.state,
                each.digest[:_DIGEST_SHOWN],
                _to_the_minute(each.published_at),
                each.published_by,
                _to_the_minute(each.activated_at),
                each.activated_by,
                each.live_commands,
                each.live_items,
            )
            for each in views
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of two things that are compared."""

    called: str
    content: IntegrationBindingView
    listed: ListedView | None = None

    def document(self) -> dict[str, object]:
        """What JSON says of it."""
        return {
            "called": self.called,
            "digest": self.content.digest if self.listed is None else self.listed.digest,
            "pack_digest": self.content.pack_digest,
            "binding_digest": self.content.binding_digest,
            "revision": None if self.listed is None else self.listed.revision,
            "state": None if self.listed is None else self.listed.state,
            "live_commands": None if self.listed is None else self.listed.live_commands,
        }


def diff(
    before: Annotated[
        str, typer.Argument(metavar="A", help="A revision, `current`, or a binding file.")
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="Likewise; without it, A is held against `current`."),
    ] = None,
    *,
    org: arguments.Org,
    installation: arguments.Installation,
    name: Name = None,
    pack_folder: PackFolders = None,
    json: arguments.Json = False,
) -> None:
    """Show what B does otherwise than A, key by key, and what that means for queued work."""
    words = (before, after) if after is not None else (_CURRENT, before)
    settings = read_settings()
    files = {
        word: compiled(settings, Path(word), pack_folder)
        for word in words
        if word != _CURRENT and not word.isdecimal()
    }
    numbers = [None if word == _CURRENT else int(word) for word in words if word not in files]
    named = name or next((view.name for view in files.values()), None)

    async def read() -> Sequence[ReadRevision]:
        async with opened_store(settings) as engine:
            return await read_revisions(
                engine, OrgId(org), InstallationId(installation), named, numbers
            )

    found = iter(interruptible.run(read()) if numbers else ())
    old, new = (
        _Side(called=word, content=files[word]) if word in files else _of(next(found))
        for word in words
    )
    _print_diff(old, new, differences(old.content, new.content), json=json)


def activate(
    name: Annotated[
        str, typer.Argument(parser=arguments.name, metavar="NAME", help="Of a binding.")
    ],
    revision: Annotated[int, typer.Argument(min=1, help="Newer or older than the current one.")],
    *,
    org: arguments.Org,
    installation: arguments.Installation,
    expected_version: Annotated[
        int,
        typer.Option(
            "--expected-version",
            metavar="REVISION",
            min=1,
            help="The revision that is current as you looked at it; refused if it has moved.",
        ),
    ],
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Accept new commands under another revision. What was accepted keeps its own."""
    settings = read_settings()

    async def activated() -> Activation:
        async with opened_store(settings) as engine:
            return await activate_view(
                engine,
                OrgId(org),
                InstallationId(installation),
                name,
                revision,
                expected_current=expected_version,
                actor=ACTOR,
                note=note,
            )

    done = interruptible.run(activated())
    if json:
        show_json(asdict(done))
        return
    verb = "is current from now on" if done.is_new else "was made current before and stays it"
    instead = f"; it replaced revision {done.replaced_revision}" if done.replaced_revision else ""
    say(f"{done.name} revision {done.revision} {verb}{instead}")


def _to_the_minute(moment: datetime | None) -> str | None:
    # A table has little room; the document has the whole time and whole digests.
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M%z}"


def pack_folders(settings: Settings, given: list[Path] | None) -> tuple[Path, ...]:
    """Where packs are looked for."""
    return (*(given or ()), *settings.pack_folders)


def compiled(settings: Settings, file: Path, given: list[Path] | None) -> IntegrationBindingView:
    """
    The view that a binding file would be published as.

    Raises:
        CatalogError: The file or its pack is not valid.
    """
    binding = loader.load_binding(file)
    return compile_view(loader.load_pack(binding.pack, pack_folders(settings, given)), binding)


def _of(read: ReadRevision) -> _Side:
    listed = read.listed
    called = f"revision {listed.revision} ({listed.state})"
    return _Side(called=called, content=read.content, listed=listed)


def _print_diff(old: _Side, new: _Side, found: Sequence[Difference], *, json: bool) -> None:
    if json:
        lines = [asdict(each) | {"meaning": each.meaning} for each in found]
        show_json({"before": old.document(), "after": new.document(), "changes": lines})
        return
    title = f"{old.content.name}: {old.called} -> {new.called}"
    if found:
        show_table(
            title,
            ("key", "what", "before", "after", "once it is current"),
            [(each.key, each.kind, each.before, each.after, each.meaning) for each in found],
        )
    else:
        is_same = old.document()["digest"] == new.document()["digest"]
        say(f"{title}: the same" + ("" if is_same else " in all that is done; the digests differ"))
    if old.listed is not None:
        say(f"{old.listed.live_commands} live commands pin {old.called} and stay with it")
