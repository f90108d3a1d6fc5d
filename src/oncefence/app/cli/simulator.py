"""`oncefence simulator`: a hostile provider for whoever develops an integration."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note, say, show_json

if TYPE_CHECKING:
    from oncefence.simulator.exchange import Exchange
    from oncefence.simulator.server import Settings, Simulator

_HOST: Final = "127.0.0.1"
_RATE: Final = 0.3
_RECORDS: Final = 3


def simulator(
    *,
    pack: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A provider that is built in, or a pack's .toml."),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Every request meets it; several take turns."),
    ] = None,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON list of rules: who meets which fault.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Deal the faults by lot instead, the same for the same seed.")
    ] = None,
    fault_rate: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="With --seed: the share of requests.")
    ] = _RATE,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 for a free one.")] = 0,
    admin_port: Annotated[int, typer.Option(min=0, max=65_535, help="0 for a free one.")] = 0,
    token: Annotated[str | None, typer.Option(help="The only token that is accepted.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Made or continued; else a new one.")
    ] = None,
    records: Annotated[
        int, typer.Option(min=0, max=10_000, help="How many an empty provider begins with.")
    ] = _RECORDS,
    index_lag: Annotated[
        float | None, typer.Option(min=0, max=3600, help="How old a search's index is, in seconds.")
    ] = None,
    list_faults: Annotated[
        bool, typer.Option("--list-faults", help="Tell every fault and end.")
    ] = False,
    view: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tell what a ledger says and end.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, then silence.")] = False,
) -> None:
    """Play a provider on this machine, break as told, and keep a ledger of who changed what."""
    # Imported here: the other verbs need none of this and start in half the time without it.
    from oncefence.simulator import cli  # noqa: PLC0415
    from oncefence.simulator.dialects.known import dialect_of  # noqa: PLC0415
    from oncefence.simulator.faults import read_script  # noqa: PLC0415
    from oncefence.simulator.journal import JournalFailed  # noqa: PLC0415
    from oncefence.simulator.ledger import read_ledger  # noqa: PLC0415
    from oncefence.simulator.server import Settings  # noqa: PLC0415
    from oncefence.simulator.view import exchange_line, ledger_view  # noqa: PLC0415

    def tell(exchange: "Exchange") -> None:
        say(exchange_line(exchange))
        sys.stdout.flush()

    try:
        if view is not None:
            _tell_lines(ledger_view(read_ledger(view)))
            return
        if list_faults:
            known = cli.fault_texts(None if pack is None else dialect_of(pack))
            show_json(known) if json else _tell_lines(cli.fault_list(known))
            return
        if pack is None:
            raise cli.BadArguments("say which provider: --pack NAME, or --pack FILE.toml")
        dialect = dialect_of(pack)
        rules, dealer = cli.dealing(cli.faults_of(fault or (), dialect), seed=seed, rate=fault_rate)
        settings = Settings(
            host=_HOST,
            port=port,
            admin_port=admin_port,
            ledger=ledger or Path(mkdtemp(prefix="oncefence-simulator-")) / "ledger.jsonl",
            token=cli.checked_token(dialect.default_token if token is None else token),
            script={**(read_script(script) if script is not None else {}), **rules},
            seeded=dealer,
            dialect=dialect,
            index_lag=None if index_lag is None else timedelta(seconds=index_lag),
            **({} if json else {"tell": tell}),
        )
        asyncio.run(
            cli.serve(settings, lambda here: _announce(settings, here, records, is_json=json))
        )
    except OSError as reason:
        raise typer.BadParameter(f"{view} cannot be read: {reason.strerror}") from None
    except cli.BAD_INPUT as reason:
        raise typer.BadParameter(str(reason)) from None
    except JournalFailed as reason:
        note(str(reason))
        raise typer.Exit(ExitCode.REFUSED) from None


def _announce(settings: "Settings", simulator: "Simulator", records: int, *, is_json: bool) -> None:
    dialect = settings.dialect
    contacts = simulator.stores.contacts
    if not contacts.all():
        for number in range(1, records + 1):
            kind, record, properties = dialect.example(number)
            simulator.admin.make(record, properties, object_name=kind)
    ids = [contact.id for contact in contacts.all()]
    url, admin = f"http://{_HOST}:{simulator.port}", f"http://{_HOST}:{simulator.admin_port}"
    if is_json:
        told: dict[str, Any] = {
            "pack": dialect.name,
            "url": url,
            "token": settings.token,
            "admin_url": admin,
            "ledger": str(settings.ledger),
            "records": ids,
        }
        show_json(told)
        sys.stdout.flush()
        return
    say(f"{dialect.title}, simulated, listens at {url}")
    say(f"  token    {settings.token}")
    say(f"  records  {', '.join(ids[:10])}{' and more' if len(ids) > 10 else ''}")
    say(f"  admin    {admin}/state")
    say(f"  ledger   {settings.ledger}")
    say("Ctrl-C ends it. What comes:")
    sys.stdout.flush()  # whoever reads it through a pipe must not wait for the end


def _tell_lines(text: str) -> None:
    for line in text.splitlines():
        say(line)
