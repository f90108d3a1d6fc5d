"""Accounts on the command line: one message where it is refused, and one word where it is done."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncefence.domain.redaction import Secret
from tests.connecting.office import NAME, Office
from tests.support.command_line import environment_with, run
from tests.support.oauth_server import APP, CLIENT, CLUBS, TOKEN_OF_A_PERSON

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def settings(office: Office, tmp_path: Path) -> Mapping[str, object]:
    """What an administrator's shell has."""
    token = Secret(office.operator.headers["Authorization"].removeprefix("Bearer "))
    return {
        "DOORS": office.door.url,
        "OPERATOR_TOKEN": token.reveal(),
        "DATABASE_URL": office.database.app_url,
        "KEY_FILE": office.door.key_file,
        "PACK_FOLDERS": CLUBS.parent,
    }


def words(office: Office, *more: object, verb: str = "connect") -> tuple[object, ...]:
    """The words that connect an account."""
    how = ("--provider", "clubs", "--grant", "app", "--base-url", office.provider.base_url)
    if verb != "connect":
        return ("binding", verb, NAME, "--org", office.org, "--note", "asked for", *more)
    return ("binding", "connect", NAME, "--org", office.org, *how, "--local", "--note", "x", *more)


@asynccontextmanager
async def waiting(
    settings: Mapping[str, object], *given: object
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The program while it waits for a person, and the address that it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "oncefence.app.cli",
        *map(str, given),
        stdout=PIPE,
        stderr=PIPE,
        env=environment_with(settings),
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
            yield process, line.decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class TestConnecting:
    async def test_prints_where_to_go_and_waits(
        self, office: Office, settings: Mapping[str, object]
    ) -> None:
        """The address comes on a line of its own; the outcome is the last word."""
        async with waiting(settings, *words(office)) as (process, url):
            page = await office.come_back(await office.provider.consent(url))
            out, _ = await process.communicate()

        assert page.status_code == 200
        assert (process.returncode, out.decode()) == (0, "connected\n")

    async def test_says_why_it_came_to_nothing(
        self, office: Office, settings: Mapping[str, object]
    ) -> None:
        """A refusal at the provider ends the program with one message."""
        office.provider.denies = "access_denied"
        async with waiting(settings, *words(office)) as (process, url):
            await office.come_back(await office.provider.consent(url))
            out, err = await process.communicate()

        assert (process.returncode, out) == (1, b"")
        assert "denied, access_denied" in err.decode().splitlines()[-1]

    async def test_prints_alone_where_it_is_asked_to(
        self, office: Office, settings: Mapping[str, object]
    ) -> None:
        """A script hands the address on, and asks later."""
        ended = await run(*words(office, "--print"), settings=settings)
        shown = await run("binding", "list", "--org", office.org, "--json", settings=settings)

        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith(f"{office.provider.base_url}/oauth/authorize?")
        assert shown.document["bindings"] == []

    async def test_an_installation_is_done_at_once(
        self, office: Office, settings: Mapping[str, object]
    ) -> None:
        """Nobody has to go anywhere."""
        ended = await run(
            *("binding", "connect", NAME, "--org", office.org, "--provider", "clubs"),
            *("--grant", "install", "--installation", "club-a", "--local", "--note", "x"),
            *("--base-url", office.provider.base_url),
            settings=settings,
        )

        assert (ended.code, ended.out) == (0, "connected\n")


class TestAfterwards:
    async def test_it_is_listed_shown_and_disconnected(
        self, office: Office, settings: Mapping[str, object]
    ) -> None:
        """One version goes from verb to verb."""
        await office.connect()
        of_org = ("--org", office.org)
        listed = await run("binding", "list", *of_org, "--json", settings=settings)
        screen = await run("binding", "list", *of_org, settings=settings)
        shown = await run("binding", "show", NAME, *of_org, settings=settings)
        version = listed.document["bindings"][0]["version"]
        ended = await run(
            *words(office, "--expected-version", version, verb="disconnect"), settings=settings
        )

        assert version == "1.current"
        assert all(word in screen.out for word in (NAME, "club-a", "healthy", "1.current"))
        assert all(word in shown.out for word in ("Generations", "Requests", "connected"))
        assert (ended.code, ended.out) == (0, f"{NAME} is disconnected, at version 1.retired\n")
        assert "has ended the authorisation" in ended.message

    async def test_a_revocation_that_fails_shows_in_the_exit_code(
        self, office: Office, settings: Mapping[str, object]
    ) -> None:
        """It is disconnected, and something is left to do."""
        await office.connect()
        office.provider.revocation_status = 400
        ended = await run(
            *words(office, "--expected-version", "1.current", verb="disconnect"), settings=settings
        )

        assert ended.code == 1
        assert "did not end the authorisation (refused, status_400)" in ended.message

    async def test_it_is_bound_anew_with_another_token(
        self, office: Office, settings: Mapping[str, object], tmp_path: Path
    ) -> None:
        """The token comes from a file that nobody else can read."""
        await office.connect()
        token = tmp_path / "token"
        token.write_text(TOKEN_OF_A_PERSON)
        token.chmod(0o600)
        given = words(
            office, "--token-file", token, "--expected-version", "1.current", verb="rebind"
        )
        ended = await run(*given, settings=settings)
        again = await run(*given, settings=settings)

        assert ended.code == 0
        assert (await office.generations())[1][:2] == (2, "current")
        assert again.code == 1
        assert "is at version 2.current and not at 1.current" in again.message

    async def test_reauthorizing_a_token_of_a_person_says_what_to_do(
        self, office: Office, settings: Mapping[str, object]
    ) -> None:
        """One message, and the other verb."""
        await office.add_by_hand()
        ended = await run(
            *words(office, "--expected-version", "1.current", verb="reauthorize"),
            settings=settings,
        )

        assert ended.code == 1
        assert "oncefence binding rebind" in ended.message


class TestApps:
    def secret(self, folder: Path, content: str, mode: int = 0o600) -> Path:
        path = folder / "secret"
        path.write_text(content)
        path.chmod(mode)
        return path

    async def test_is_added_listed_and_its_secret_exchanged(
        self, office: Office, settings: Mapping[str, object], tmp_path: Path
    ) -> None:
        """The secret is printed nowhere; the one before ends."""
        given = (
            *("app", "add", "--org", office.org, "--provider", "clubs", "--grant", "app"),
            *("--client-id", CLIENT, "--note", "yearly exchange", "--secret-file"),
            self.secret(tmp_path, "another-secret-of-the-app\n"),
        )
        ended = await run(*given, settings=settings)
        listed = await run("app", "list", "--org", office.org, "--json", settings=settings)
        screen = await run("app", "list", "--org", office.org, settings=settings)

        (app,) = [row for row in listed.document["apps"] if row["grant"] == "app"]
        assert ended.code == 0
        assert "the secret of this client was exchanged" in ended.message
        assert (app["app_id"], app["note"]) == (ended.out.strip(), "yearly exchange")
        assert "another-secret" not in ended.out + listed.out + screen.out

    async def test_of_every_org_is_used_by_those_without_one(
        self, office: Office, settings: Mapping[str, object], tmp_path: Path
    ) -> None:
        """An org's own app comes first (C281)."""
        await office.forget_apps()
        without = await office.ask_to_connect()
        ended = await run(
            *("app", "add", "--all-orgs", "--provider", "clubs", "--grant", "app"),
            *("--client-id", CLIENT, "--note", "for all", "--secret-file"),
            self.secret(tmp_path, "client-secret-of-the-tests"),
            settings=settings,
        )
        begun = await office.connect()

        assert (without.status_code, ended.code) == (422, 0)
        assert await office.outcome(begun) == ("connected", None)
        await office.forget_apps(org="*")

    async def test_of_minted_tokens_needs_a_key_that_signs(
        self, office: Office, settings: Mapping[str, object], tmp_path: Path
    ) -> None:
        """Told now, and not when the first token is due."""
        given = ("app", "add", "--org", office.org, "--provider", "clubs", "--grant", "install")
        given = (*given, "--client-id", APP, "--note", "x", "--secret-file")
        bad = await run(*given, self.secret(tmp_path, "no key"), settings=settings)
        good = await run(
            *given, self.secret(tmp_path, office.provider.key_pem()), settings=settings
        )

        assert (bad.code, good.code) == (1, 0)
        assert "no RSA key" in bad.message

    @pytest.mark.parametrize(
        "refused",
        [
            ("app", 0o644, "chmod 600"),
            ("key", 0o600, "needs an app"),
            ("none-such", 0o600, "needs an app"),
        ],
    )
    async def test_that_is_refused_is_told_in_one_message(
        self,
        office: Office,
        settings: Mapping[str, object],
        tmp_path: Path,
        refused: tuple[str, int, str],
    ) -> None:
        """Nothing is stored."""
        grant, mode, says = refused
        ended = await run(
            *("app", "add", "--org", office.org, "--provider", "clubs", "--grant", grant),
            *("--client-id", CLIENT, "--note", "x", "--secret-file"),
            self.secret(tmp_path, "a-secret", mode),
            settings=settings,
        )

        assert ended.code == 1
        assert says in ended.message
