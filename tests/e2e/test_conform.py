"""`oncefence conform` as a user starts it: against its own simulator, and against a sandbox."""

import json
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import pytest

from oncefence.app.cli import main
from oncefence.app.cli.exits import ExitCode
from oncefence.app.conform.certificate import Verdict
from oncefence.app.conform.product import Place
from oncefence.app.conform.sandbox import Sandbox, certify_at
from oncefence.app.processes import free_port
from oncefence.catalog.loader import load_pack
from oncefence.domain.redaction import Secret
from oncefence.simulator.in_process import SimulatorHere, simulating
from tests.conform.bad_packs import BAD_PACKS
from tests.support.command_line import Ended, run
from tests.support.dialect import DATA

TOKEN = "token-of-the-sandbox"


@pytest.fixture
async def sandbox() -> AsyncIterator[SimulatorHere]:
    async with simulating("hubspot", token=TOKEN) as here:
        yield here


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return kept(tmp_path / "token", TOKEN)


def kept(path: Path, token: str) -> Path:
    """A file of a token, its owner's alone."""
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    return path


async def at(sandbox: SimulatorHere, token_file: Path, *words: object) -> Ended:
    place = ("--sandbox", sandbox.base_url, "--local", "--token-file", token_file)
    ended = await run("conform", "hubspot", *place, *words)
    assert TOKEN not in ended.out + ended.err
    return ended


def place_of(sandbox: SimulatorHere) -> Place:
    return Place(base_url=sandbox.base_url, is_local=True, token=Secret(TOKEN))


def verdicts(ended: Ended) -> dict[str, str]:
    return {each["check"]: each["verdict"] for each in ended.document["checks"]}


async def test_a_certificate_is_printed_and_written(tmp_path: Path) -> None:
    """One command and nothing else: no setting, no database, no server to be started before."""
    path = tmp_path / "certificate.json"
    ended = await run("conform", "hubspot", "--json", path)

    document = json.loads(path.read_text())
    assert ended.code == ExitCode.DONE, ended.err
    assert "lookup.applied" in ended.out
    assert "0 failed" in ended.out
    assert document["format"] == "oncefence.certificate/1"
    assert document["is_passed"] is True
    assert document["pack_digest"] in ended.out
    assert {"check", "operation", "claim", "verdict", "reason", "evidence"} == set(
        document["checks"][0]
    )


async def test_a_failed_check_ends_with_one(tmp_path: Path) -> None:
    """Whoever runs it in a pipeline is stopped, and told which line of the pack to look at."""
    bad = next(each for each in BAD_PACKS if each.name == "bad_identity_path")
    ended = await run("conform", bad.write(tmp_path))

    failed = [line for line in ended.out.splitlines() if "FAILED" in line]
    assert ended.code == ExitCode.REFUSED
    assert len(failed) == 1
    assert failed[0].startswith("success.identity")
    assert "answer.identity" in failed[0]


def test_a_pack_with_a_typo_is_refused_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pack that cannot even be read is told like `catalog check` tells it (C562)."""
    text = (files("oncefence.catalog") / "packs" / "hubspot.toml").read_text("utf-8")
    path = tmp_path / "hubspot.toml"
    path.write_text(text.replace("endpoint_class", "endpoint_clas", 1))

    assert main(["conform", str(path)]) == ExitCode.USAGE
    told = capsys.readouterr().err.replace('"', "")
    assert f"oncefence: {path}: operations.contact.update.endpoint_clas" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--operation", "contact.updat"], "contact.update"),
        (["--remote-id", "501"], "--remote-id"),
        (["--allow-writes"], "--allow-writes"),
        (["--value", "a=b"], "--value"),
        (["--custom-field", "jobtitl"], "did you mean 'jobtitle'?"),
        (["--sandbox", "https://api.example.com"], "--token-file"),
        (["--sandbox", "https://x.example", "--custom-field", "a"], "--custom-field"),
        (["--sandbox", "https://x.example", "--token-file", "t", "--allow-writes"], "--remote-id"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option without effect would be believed to have one."""
    assert main(["conform", "hubspot", *words]) == ExitCode.USAGE

    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize(
    ("path", "told"), [(".", "it is a folder"), ("/nowhere/c.json", "there is no such folder")]
)
def test_a_certificate_that_could_not_be_written_is_refused_before_the_work(
    path: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a minute of checks is not thrown away for a slip in a name."""
    assert main(["conform", "hubspot", "--json", path]) == ExitCode.REFUSED

    heard = capsys.readouterr()
    assert heard.out == ""
    assert told in heard.err


def test_a_folder_of_packs_is_no_pack(capsys: pytest.CaptureFixture[str]) -> None:
    """`catalog check` takes a folder, so somebody will try it here."""
    assert main(["conform", str(DATA / "packs")]) == ExitCode.USAGE
    assert "is a folder; name one file in it" in capsys.readouterr().err


def test_a_sandbox_that_does_not_answer_is_one_message(
    token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a check of the pack that failed, for nothing was asked of it."""
    place = ("--sandbox", f"http://127.0.0.1:{free_port()}", "--local", "--remote-id", "501")
    words = ["conform", "hubspot", *place, "--token-file", str(token_file)]

    assert main(words) == ExitCode.REFUSED
    heard = capsys.readouterr()
    assert heard.out == ""
    assert "the connection is refused" in heard.err


async def test_what_the_sandbox_refuses_is_told_as_such(
    sandbox: SimulatorHere, token_file: Path, tmp_path: Path
) -> None:
    """A wrong token and a wrong record are mistakes of who asks, and not of the pack."""
    absent = await at(sandbox, token_file, "--remote-id", "99999")
    wrong = kept(tmp_path / "wrong", "another-token")
    refused = await at(sandbox, wrong, "--remote-id", sandbox.add_record().id)

    assert (absent.code, refused.code) == (ExitCode.REFUSED, ExitCode.REFUSED)
    assert "the provider has no such record" in absent.out
    assert "the provider refuses the token" in refused.out
    assert "not certified, because contact.update lookup.reads failed" in refused.err


async def test_a_sandbox_is_only_read(sandbox: SimulatorHere, token_file: Path) -> None:
    """What was not permitted is left out and said, never tried."""
    record = sandbox.add_record().id
    ended = await at(sandbox, token_file, "--remote-id", record)

    assert ended.code == ExitCode.DONE, ended.err
    assert "writes: they were not permitted" in ended.err
    assert sandbox.changes() == []
    assert [each.method for each in sandbox.requests()] == ["GET"]


async def test_a_sandbox_without_a_record_shows_nothing(sandbox: SimulatorHere) -> None:
    """A certificate in which nothing was checked must not pass."""
    certificate = await certify_at(load_pack("hubspot"), Sandbox(place=place_of(sandbox)))

    assert not certificate.is_passed
    assert sandbox.requests() == []


async def test_the_one_named_record_is_written_and_written_back(
    sandbox: SimulatorHere, token_file: Path
) -> None:
    """Somebody lent us a record: it is to look as it did before."""
    other = sandbox.add_record()
    before = sandbox.add_record(properties={"jobtitle": "Dean", "phone": "1", "company": "x"})
    ended = await at(
        *(sandbox, token_file, "--remote-id", before.id, "--allow-writes"),
        *("--value", "jobtitle=Rector", "--json", "-"),
    )

    after = sandbox.record(before.id)
    first, second = sandbox.changes()
    assert ended.code == ExitCode.DONE, ended.err
    assert verdicts(ended)["lookup.applied"] == "passed"
    assert verdicts(ended)["record.restored"] == "passed"
    assert first.properties["jobtitle"] == "Rector"
    assert second.properties["jobtitle"] == "Dean"
    assert {first.contact, second.contact} == {before.id}
    assert after is not None
    assert {name: value for name, value in after.properties.items() if value} == before.properties
    assert sandbox.record(other.id) == other


async def test_a_sandbox_shows_what_the_pack_has_wrong(
    sandbox: SimulatorHere, tmp_path: Path
) -> None:
    """The provider itself is the best witness against a pack."""
    bad = next(each for each in BAD_PACKS if each.name == "bad_identity_path")
    there = Sandbox(place=place_of(sandbox), remote_id=sandbox.add_record().id, may_write=True)
    certificate = await certify_at(load_pack(bad.write(tmp_path)), there)

    seen = {each.check: each.verdict for each in certificate.checks}
    assert not certificate.is_passed
    assert seen["success.accepted"] is Verdict.FAILED
    assert seen["lookup.applied"] is Verdict.NOT_APPLICABLE
    assert seen["record.restored"] is Verdict.PASSED


@pytest.mark.parametrize("is_minded", [True, False])
async def test_a_condition_is_tried_with_what_the_record_holds_already(
    *, is_minded: bool, tmp_path: Path
) -> None:
    """A provider that does not mind it is found at once, and even then nothing is lost (C142)."""
    bad = next(each for each in BAD_PACKS if each.check == "condition.stale")
    pack = DATA / "packs" / "quarry.toml" if is_minded else bad.write(tmp_path)
    async with simulating(pack if is_minded else "hubspot", token=TOKEN) as sandbox:
        _, _, example = sandbox.dialect.example(1)
        version = {sandbox.dialect.version: '"v1"'} if sandbox.dialect.version else {}
        before = sandbox.add_record(properties={**example, **version})
        there = Sandbox(place=place_of(sandbox), remote_id=before.id, may_write=True)
        certificate = await certify_at(load_pack(pack), there)

        seen = {each.check: each.verdict for each in certificate.checks}
        after = sandbox.record(before.id)
        assert seen["condition.stale"] is (Verdict.PASSED if is_minded else Verdict.FAILED)
        assert seen["success.accepted"] is Verdict.NOT_APPLICABLE
        assert len(sandbox.changes()) == (0 if is_minded else 1)
        assert after is not None
        held = {name: value for name, value in after.properties.items() if value}
        assert held == dict(before.properties)


async def test_a_key_is_tried_and_a_create_left_out() -> None:
    """A repeat under a key is safe to try anywhere; a record that nobody named is not made."""
    async with simulating("stripe", token=TOKEN) as sandbox:
        record = sandbox.add_record(properties={"name": "Ada", "email": "ada@example.com"})
        there = Sandbox(place=place_of(sandbox), remote_id=record.id, may_write=True)
        certificate = await certify_at(load_pack("stripe"), there)

        seen = {(each.operation, each.check): each.verdict for each in certificate.checks}
        assert certificate.is_passed
        assert seen["customer.update", "key.repeat"] is Verdict.PASSED
        assert seen["customer.create", "lookup.none"] is Verdict.PASSED
        assert seen["customer.create", "success.accepted"] is Verdict.NOT_APPLICABLE
        assert len(sandbox.changes()) == 2
        assert not any(change.is_creation for change in sandbox.changes())
