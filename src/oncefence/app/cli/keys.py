"""
`oncefence keys`: the wrapping keys of the key file, and what in the database is under each.

Acts on the file of ONCEFENCE_KEY_FILE and the database itself: whoever may do it holds both.
"""

from typing import Annotated, Any

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note, say, show_json, show_table
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.app.key_rotation import Rotated, Standing, rotate, standing
from oncefence.storage.key_file import add_key, make_current
from oncefence.storage.sealing import KeyRing

app = typer.Typer(help="The keys that wrap what is sealed.", no_args_is_help=True)

Document = dict[str, Any]  # JSON


@app.command()
def status(*, json: arguments.Json = False) -> None:
    """Count by table and key which stored data keys are under which key of the ring."""
    found = interruptible.run(_status(read_settings()))
    if json:
        show_json(_document(found))
    else:
        _print_standing(found)
        _print_left(found)


@app.command()
def add(*, json: arguments.Json = False) -> None:
    """Add a new key to the key file that opens and wraps nothing yet, and print its id."""
    key_id = add_key(read_settings().key_file)
    if json:
        show_json({"key_id": key_id})
        return
    say(key_id)
    note("keep a copy of the file safe, give it to every host, then `oncefence keys rotate --to`")


@app.command("rotate")
def rotate_(
    *,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make a new key and put it first in the key file.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="KEY_ID", help="Put this key of the key file first."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """
    Wrap every stored data key anew under the first key of the key file.

    Nothing has to stand still meanwhile, and it may be killed at any moment: run it again.
    """
    if new_key and to is not None:
        raise typer.BadParameter("give either --new-key or --to")
    ended = interruptible.run(_rotate(read_settings(), is_new=new_key, to=to))
    if json:
        show_json(
            {
                "before": _document(ended.before),
                "after": _document(ended.after),
                "rewrapped": ended.rewrapped,
            }
        )
    else:
        _print_standing(ended.after)
        say(f"wrapped anew: {sum(ended.rewrapped.values())}")
        _print_left(ended.after)
    if ended.after.under_other_keys:
        raise typer.Exit(ExitCode.REFUSED)


async def _status(settings: Settings) -> Standing:
    ring = KeyRing.load(settings.key_file)
    # Without a check of the ring: what it lacks is just what is to be seen here.
    async with opened_store(settings) as engine:
        return await standing(engine, ring)


async def _rotate(settings: Settings, *, is_new: bool, to: str | None) -> Rotated:
    path = settings.key_file
    async with opened_store(settings, KeyRing.load(path)) as engine:
        # The file is durable before anything is wrapped with what it holds.
        if is_new:
            to = add_key(path)
            note(f"key {to} was made; keep a copy of {path} safe")
        if to is not None:
            make_current(path, to)
        return await rotate(engine, KeyRing.load(path), actor=ACTOR, tell=_tell)


def _tell(table: str, count: int) -> None:
    note(f"{count} of {table} are wrapped anew")


def _document(found: Standing) -> Document:
    return {
        "current": found.current,
        "keys": [
            {
                "key_id": key_id,
                "is_current": key_id == found.current,
                "is_in_ring": key_id in found.ring,
                "data_keys": sum(found.under(key_id).values()),
                "by_table": found.under(key_id),
            }
            for key_id in found.key_ids
        ],
        "under_other_keys": found.under_other_keys,
        "waiting": found.waiting,
    }


def _print_standing(found: Standing) -> None:
    tables = sorted({use.table for use in found.uses})
    show_table(
        "Data keys by the key that wraps them",
        ("key", "is", *tables),
        [
            (key_id, _role(found, key_id), *(found.under(key_id).get(each, 0) for each in tables))
            for key_id in found.key_ids
        ],
    )


def _role(found: Standing, key_id: str) -> str:
    if key_id == found.current:
        return "current"
    if key_id not in found.ring:
        return "MISSING in the key file"
    return "in use" if found.under(key_id) else "not in use"


def _print_left(found: Standing) -> None:
    left = found.under_other_keys
    if not left:
        say("everything is under the current key")
        return
    say(f"{left} are under another key; run `oncefence keys rotate`")
    if found.waiting:
        note(
            f"{found.waiting} of them wait: a renewal of a token is open or lost its answer, or "
            "an authorisation is under way"
        )
