"""`oncefence binding connect` and its kin: accounts, from their beginning to their end."""

import sys
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.operator_call import ExpectedVersion, Note, ask, show
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_record, show_table
from oncefence.app.cli.secret_file import read_secret
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.operator_client import Document
from oncefence.domain.authorization import (
    NOBODY,
    RequestOutcome,
    is_installation,
)
from oncefence.domain.errors import ActRefused
from oncefence.domain.ids import OrgId
from oncefence.storage.phases.rebind_principal import rebind_principal
from oncefence.storage.sealing import KeyRing

_PATH: Final = "bindings"
_POLL_SECONDS: Final = 1.0
_OPEN: Final = ("open", "under_way")
_OF_GENERATION: Final = (
    *("ordinal", "state", "pack_grant", "account", "made_at"),
    *("retired_because", "retired_at"),
)
_OF_REQUEST: Final = (
    *("request_id", "act", "outcome", "failure_class", "made_by"),
    *("note", "made_at"),
)
_REVOKED: Final = ("revoked", "not_declared", "not_wanted", "done_before")


def _installation(text: str) -> str:
    if not is_installation(text):
        raise typer.BadParameter("use 1 to 200 of A-Z, a-z, 0-9, _ and -")
    return text


Name = Annotated[
    str,
    typer.Argument(parser=arguments.name, metavar="NAME", help="As `principal` in a binding file."),
]
PrintOnly = Annotated[
    bool, typer.Option("--print", help="Print where to go, and do not wait for the outcome.")
]
Open = Annotated[bool, typer.Option("--open", help="Open it in a browser of this machine.")]
KnownVersion = Annotated[
    str,
    typer.Option(
        "--expected-version",
        metavar="V",
        help="Of a binding that is there: its version as you looked at it. Another generation "
        "begins, and what waits for the one before ends.",
    ),
]


def connect(
    name: Name,
    *,
    org: arguments.Org,
    provider: Annotated[
        str, typer.Option(parser=arguments.name, metavar="PACK", help="Name of its pack.")
    ],
    grant: Annotated[str, typer.Option(metavar="GRANT", help="As the pack names it.")],
    user: arguments.User = None,
    installation: Annotated[
        str | None,
        typer.Option(
            parser=_installation, metavar="ID", help="Of our app there, where tokens are minted."
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another origin than the pack's.")
    ] = None,
    local: Annotated[
        bool,
        typer.Option(
            "--local",
            help="Permit http:// and addresses that are not public; its endpoints are there too.",
        ),
    ] = False,
    expected_version: KnownVersion = NOBODY,
    note: Note,
    print_only: PrintOnly = False,
    open_browser: Open = False,
    json: arguments.Json = False,
) -> None:
    """Connect an account: say where its person consents, and wait for what comes of it."""
    body = {
        "org": org,
        "name": name,
        "provider": provider,
        "grant": grant,
        "user": user,
        "installation": installation,
        "base_url": base_url,
        "local": local,
        "expected_version": expected_version,
        "note": note,
    }
    begun = ask(lambda doors: doors.post(f"{_PATH}/connect", body))
    _go_on(org, begun, print_only=print_only, open_browser=open_browser, json=json)


def reauthorize(
    name: Name,
    *,
    org: arguments.Org,
    user: arguments.User = None,
    expected_version: ExpectedVersion,
    note: Note,
    print_only: PrintOnly = False,
    open_browser: Open = False,
    json: arguments.Json = False,
) -> None:
    """Repair an account's grant; what waits for it goes on, if it is the same account."""
    body = {
        "org": org,
        "name": name,
        "user": user,
        "expected_version": expected_version,
        "note": note,
    }
    begun = ask(lambda doors: doors.post(f"{_PATH}/reauthorize", body))
    _go_on(org, begun, print_only=print_only, open_browser=open_browser, json=json)


def list_(
    *,
    org: Annotated[
        str | None,
        typer.Option("--org", parser=arguments.name, metavar="ORG", help="Else all of yours."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """List the accounts, how each is connected, and what waits for it."""
    show(ask(lambda doors: doors.get(_PATH, {"org": org})), json=json, as_text=_print_bindings)


def show_(
    name: Name, *, org: arguments.Org, user: arguments.User = None, json: arguments.Json = False
) -> None:
    """Show one account with its generations and what was asked for it."""
    query = {"org": org, "user": user}
    show(ask(lambda doors: doors.get(f"{_PATH}/{name}", query)), json=json, as_text=_print_binding)


def disconnect(
    name: Name,
    *,
    org: arguments.Org,
    user: arguments.User = None,
    without_revocation: Annotated[
        bool,
        typer.Option(
            "--without-revocation",
            help="Do not tell the provider; what the provider holds stays good there.",
        ),
    ] = False,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Disconnect an account, here and at its provider; again, it does what is left."""
    body = {
        "org": org,
        "name": name,
        "user": user,
        "without_revocation": without_revocation,
        "expected_version": expected_version,
        "note": note,
    }
    document = ask(lambda doors: doors.post(f"{_PATH}/disconnect", body))
    show(document, json=json, as_text=lambda _: _print_disconnected(name, document))
    if document["revocation"] not in _REVOKED:
        raise typer.Exit(ExitCode.REFUSED)


def rebind(
    name: Name,
    *,
    org: arguments.Org,
    user: arguments.User = None,
    token_file: Annotated[
        Path, typer.Option(help="File with the token; its owner's alone (chmod 600).")
    ],
    grant: Annotated[
        str | None, typer.Option(metavar="GRANT", help="As the pack names it, if it does.")
    ] = None,
    same_account: Annotated[
        bool,
        typer.Option(
            "--same-account", help="It is another token of the same account: links go on."
        ),
    ] = False,
    expected_version: ExpectedVersion,
    note: Note,
) -> None:
    """Have a binding speak for whomever another token is of: another generation."""
    settings = read_settings()
    token = read_secret(token_file, setting="--token-file")

    async def store() -> str:
        ring = KeyRing.load(settings.key_file)
        async with opened_store(settings, ring) as engine:
            generation = await rebind_principal(
                engine,
                ring,
                OrgId(org),
                name,
                subject=user,
                pack_grant=grant,
                token=token,
                expected_version=expected_version,
                actor=ACTOR,
                note=note,
                is_same_account=same_account,
            )
        return str(generation)

    say(f"{name} is bound anew, as generation {interruptible.run(store())}")
    remark("work that waited for the one before ends as binding_generation_stale")
    if not same_account:
        remark("links are of the account before: adopt records of this one, or say --same-account")


def _go_on(org: str, begun: Document, *, print_only: bool, open_browser: bool, json: bool) -> None:
    if begun["url"] is None:
        _end(begun, begun, json=json)
        return
    if print_only:
        show(begun, json=json, as_text=lambda _: say(begun["url"]))
        return
    remark(f"consent before {begun['expires_at']}, at:")
    # Where a script reads it: on a line of its own, and before anything is waited for.
    (remark if json else say)(begun["url"])
    sys.stdout.flush()
    if open_browser and not webbrowser.open(begun["url"]):
        remark("no browser could be opened here; go there yourself")
    path = f"authorizations/{begun['request_id']}"
    report = ask(lambda doors: doors.get(path, {"org": org}))
    while report["outcome"] in _OPEN:
        time.sleep(_POLL_SECONDS)
        report = ask(lambda doors: doors.get(path, {"org": org}))
    _end(begun, report, json=json)


def _end(begun: Document, report: Document, *, json: bool) -> None:
    outcome = report["outcome"]
    is_success = outcome in (RequestOutcome.CONNECTED, RequestOutcome.REAUTHORIZED)
    if json or is_success:
        show(report, json=json, as_text=lambda _: say(outcome))
    if is_success:
        return
    failure = report.get("failure_class")
    raise ActRefused(
        act="binding.connect",
        subject=f"request {begun['request_id']}",
        verdict=outcome if failure is None else f"{outcome}, {failure}",
        remedy="nothing was changed; ask again, and see `oncefence binding show`",
    )


def _print_bindings(document: Document) -> None:
    show_table(
        "Bindings",
        (
            "org",
            "name",
            "user",
            "provider",
            "state",
            "grant",
            "account",
            "tokens",
            "expires at",
            "waiting",
            "version",
        ),
        [
            (
                row["org"],
                row["name"],
                row["user"],
                row["provider"],
                row["state"],
                row["pack_grant"],
                row["account"],
                _tokens(row),
                row["expires_at"],
                row["waiting"],
                row["version"],
            )
            for row in document["bindings"]
        ],
    )


def _tokens(row: Document) -> str | None:
    failure = row["grant_failure"]
    state: str | None = row["grant_state"]
    return state if failure is None else f"{state} ({failure})"


def _print_binding(document: Document) -> None:
    binding = document["binding"]
    show_record(f"Binding {binding['name']}", binding)
    _rows("Generations", _OF_GENERATION, document["generations"])
    _rows("Requests", _OF_REQUEST, document["requests"])


def _rows(title: str, columns: Sequence[str], rows: Sequence[Document]) -> None:
    if rows:
        names = [column.replace("_", " ") for column in columns]
        show_table(title, names, [[row[column] for column in columns] for row in rows])


def _print_disconnected(name: str, document: Document) -> None:
    say(f"{name} is disconnected, at version {document['version']}")
    match document["revocation"]:
        case "revoked":
            remark("the provider has ended the authorisation")
        case "not_declared":
            remark("its pack does not say how the provider ends it; do that there yourself")
        case "not_wanted" | "done_before":
            pass
        case "held":
            remark(
                "its token is being renewed just now, so the provider was not told; run this again"
                f" after {document['until']}, with the version above"
            )
        case "pack_missing":
            remark(
                "its pack is not in the folders of the doors, so the provider was not told; add"
                " it and run this again with the version above, or with --without-revocation"
            )
        case other:
            failure = document["failure_class"]
            remark(
                f"the provider did not end the authorisation ({other}, {failure}); run this again"
                " with the version above, or with --without-revocation"
            )
