"""`oncefence conform`: a pack's certificate, against the simulator or a provider's sandbox."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from oncefence.app import interruptible
from oncefence.app.cli.binding import read_token
from oncefence.app.cli.catalog_revisions import PackFolders, pack_folders
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import json_text, note, say, show_json, show_table
from oncefence.app.cli.store import read_settings
from oncefence.app.conform.certificate import Certificate, CheckReport, Verdict
from oncefence.app.conform.product import Place
from oncefence.app.conform.run import certify
from oncefence.app.conform.sandbox import Sandbox, certify_at
from oncefence.app.origin import check_origin
from oncefence.catalog.definitions import ProviderPack
from oncefence.catalog.findings import unknown
from oncefence.catalog.loader import load_pack
from oncefence.domain.errors import ConfigurationRefused

_STDOUT: Final = "-"
_WORDS: Final = {
    Verdict.PASSED: "passed",
    Verdict.FAILED: "FAILED",
    Verdict.NOT_APPLICABLE: "-",
}


def conform(
    pack: Annotated[str, typer.Argument(help="Name of a pack, or its file.")],
    *,
    operation: Annotated[
        str | None, typer.Option("--operation", metavar="NAME", help="This one alone.")
    ] = None,
    custom_field: Annotated[
        list[str] | None,
        typer.Option(
            "--custom-field",
            metavar="NAME",
            help="A field that accounts of the provider may be given; may be repeated.",
        ),
    ] = None,
    sandbox: Annotated[
        str | None,
        typer.Option("--sandbox", metavar="URL", help="Origin of a sandbox; it is only read."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with its token; its owner's alone (chmod 600)."),
    ] = None,
    remote_id: Annotated[
        str | None,
        typer.Option("--remote-id", metavar="ID", help="The one record of it that is used."),
    ] = None,
    allow_writes: Annotated[
        bool,
        typer.Option("--allow-writes", help="Write to that record, and then write it back."),
    ] = False,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value", metavar="FIELD=TEXT", help="What is written to a field; may be repeated."
        ),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Permit http:// and addresses that are not public."),
    ] = False,
    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="Write the whole certificate there; - prints it instead."
        ),
    ] = None,
    pack_folder: PackFolders = None,
) -> None:
    """
    Hold a pack against a provider that breaks on command, and report each check.

    It needs no database: it starts a simulator of its own. The exit code is 0 only if every
    check passes.
    """
    loaded = load_pack(pack, pack_folders(read_settings(), pack_folder))
    if json not in (None, _STDOUT):
        _check_writable(Path(json))
    if sandbox is None:
        for given, name in (
            (token_file, "--token-file"),
            (remote_id, "--remote-id"),
            (allow_writes, "--allow-writes"),
            (value, "--value"),
            (local, "--local"),
        ):
            if given:
                raise typer.BadParameter("goes only with --sandbox", param_hint=name)
        _check_fields(loaded, custom_field or (), "--custom-field")
        done = interruptible.run(certify(loaded, only=operation, custom_fields=custom_field or ()))
    else:
        if custom_field:
            raise typer.BadParameter("is for the simulator alone", param_hint="--custom-field")
        if token_file is None:
            raise typer.BadParameter("is needed with --sandbox", param_hint="--token-file")
        if allow_writes and remote_id is None:
            raise typer.BadParameter(
                "name the one record with --remote-id", param_hint="--allow-writes"
            )
        if remote_id is not None:
            _one_object(loaded, operation)
        place = Place(
            base_url=check_origin(sandbox, is_local=local, setting="--sandbox"),
            is_local=local,
            token=read_token(token_file),
        )
        values = _values(value or [])
        _check_fields(loaded, values, "--value")
        there = Sandbox(place=place, remote_id=remote_id, may_write=allow_writes, values=values)
        done = interruptible.run(certify_at(loaded, there, only=operation))
    _report(done, json)
    if not done.is_passed:
        note(_why_not_passed(done))
        raise typer.Exit(ExitCode.REFUSED)


def _one_object(pack: ProviderPack, operation: str | None) -> None:
    objects = {each.object for each in pack.operations.values() if each.kind == "update"}
    if operation is None and len(objects) > 1:
        raise typer.BadParameter(
            f"the pack has records of several kinds ({', '.join(sorted(objects))}); say which with "
            "--operation",
            param_hint="--remote-id",
        )


def _check_fields(pack: ProviderPack, names: Iterable[str], option: str) -> None:
    known = {name for target in pack.objects.values() for name in target.fields}
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                unknown(f"field of {pack.name}", name, known), param_hint=option
            )


def _values(given: list[str]) -> dict[str, str]:
    values = {}
    for text in given:
        name, is_there, value = text.partition("=")
        if not is_there or not name:
            raise typer.BadParameter("give FIELD=TEXT", param_hint="--value")
        values[name] = value
    return values


def _report(certificate: Certificate, json: str | None) -> None:
    if json == _STDOUT:
        show_json(certificate.as_document())
        return
    for operation in dict.fromkeys(report.operation for report in certificate.checks):
        show_table(
            f"{certificate.pack} {operation}",
            ("check", "verdict", "exchanges", "what holds, or why not"),
            [
                (report.check, _WORDS[report.verdict], len(report.evidence), _told(report))
                for report in certificate.checks
                if report.operation == operation
            ],
        )
    for left_out in certificate.left_out:
        note(f"left out: {left_out}")
    counts = {verdict: certificate.count(verdict) for verdict in Verdict}
    say(
        f"{certificate.pack} ({certificate.pack_format}, digest {certificate.pack_digest}): "
        f"{counts[Verdict.PASSED]} passed, {counts[Verdict.FAILED]} failed, "
        f"{counts[Verdict.NOT_APPLICABLE]} do not apply; held against {certificate.truth}, "
        f"{certificate.provider}, by {certificate.product}, "
        f"{certificate.issued_at.isoformat(timespec='seconds')}"
    )
    if json is not None:
        _write(Path(json), json_text(certificate.as_document()))


def _why_not_passed(certificate: Certificate) -> str:
    failed = [
        f"{report.operation} {report.check}"
        for report in certificate.checks
        if report.verdict is Verdict.FAILED
    ]
    if failed:
        return f"not certified, because {', '.join(failed)} failed"
    return "not certified, because no check could be made; the reason of each stands beside it"


def _told(report: CheckReport) -> str:
    if report.verdict is Verdict.PASSED:
        return report.claim
    return report.reason or report.claim


def _check_writable(path: Path) -> None:
    """Refuse at once what could only be refused after all checks."""
    if path.is_dir():
        raise _not_written(path, "it is a folder")
    if not path.parent.is_dir():
        raise _not_written(path, "there is no such folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _not_written(path, os.strerror(errno.EACCES))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_written(path, error.strerror) from None


def _not_written(path: Path, reason: str | None) -> ConfigurationRefused:
    return ConfigurationRefused(
        setting="--json",
        reason=f"{path} cannot be written ({reason})",
        remedy="Name a file in a folder that exists and can be written",
    )
