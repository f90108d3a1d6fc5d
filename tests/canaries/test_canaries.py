"""No secret is left behind anywhere (C444, C445); and the search for them is one that finds."""

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.canaries.campaign import run_campaign
from tests.canaries.nest import MARK
from tests.canaries.scan import Search
from tests.support.servers import own_folder

KINDS = {
    "access token",
    "refresh token",
    "client secret",
    "payload value",
    "signing key",
    "line of the app's key",
    "operator token",
    "credential",
    "wrapping key",
    "database password",
    "state",
    "authorisation code",
}


async def test_no_secret_is_left_where_it_does_not_rest_sealed() -> None:
    """Logs, metrics, histories, answers, screens, tables and files hold none of fifty (C445)."""
    told: list[str] = []
    with own_folder() as folder:
        report = await run_campaign(folder / "data", told.append)

    assert report.found == []
    assert report.planted.keys() >= KINDS
    assert sum(report.planted.values()) >= 50
    # They were no fiction: those that are for a provider came to it.
    assert report.provider_knows >= 30
    # And every place was there to be read.
    for place in (
        "worker log",
        "Temporal histories",
        "Temporal's temporal.db",
        "PostgreSQL log",
        "PostgreSQL's cluster",
        "GET /metrics",
        "table token_versions",
        "table effect_attempts",
        "table token_refreshes",
        "oncefence show",
    ):
        assert report.read.get(place, 0) > 100, place


class TestTheSearch:
    @pytest.mark.parametrize("shift", ["", "a", "ab"])
    @pytest.mark.parametrize(
        "written", ["plain", "json", "base64", "urlsafe", "hex", "upper hex", "url"]
    )
    def test_finds_a_secret_in_every_form(self, written: str, shift: str) -> None:
        """A search that finds nothing anywhere would prove nothing."""
        secret = f'{MARK} "Ä"/?>>~~\n'
        text = f"{shift}{secret}{shift}"
        content = {
            "plain": text.encode(),
            "json": json.dumps({"x": text}).encode(),
            "base64": base64.b64encode(text.encode()),
            "urlsafe": base64.urlsafe_b64encode(text.encode()),
            "hex": text.encode().hex().encode(),
            "upper hex": text.encode().hex().upper().encode(),
            "url": quote(text, safe="").encode(),
        }[written]
        search = Search([("it", secret), ("another", "another secret")])

        search.look("here", b"before " + content + b" after")
        search.look("there", b"nothing of it")

        assert search.found == [("here", "it")]
        assert set(search.bytes_read) == {"here", "there"}

    @pytest.mark.parametrize("written", ["raw", "hex", "base64"])
    def test_finds_a_key_of_bytes(self, written: str) -> None:
        """A key stands in no text as itself."""
        key = bytes(range(100, 132))
        content = {"raw": key, "hex": key.hex().encode(), "base64": base64.b64encode(key)}[written]
        search = Search([("key", key)])

        search.look("here", b"x" + content)

        assert search.found == [("here", "key")]

    @pytest.mark.parametrize("written", ["plain", "hex", "base64"])
    def test_finds_a_planted_one_by_its_mark(self, written: str) -> None:
        """In whatever form it is written, and when only the mark of it is left."""
        secret = f"{MARK}-7-and-the-rest-of-it"
        write = {
            "plain": str.encode,
            "hex": lambda text: text.encode().hex().encode(),
            "base64": lambda text: base64.b64encode(text.encode()),
        }[written]
        search = Search([("it", secret), ("another", f"{MARK}-8-and-another-rest")], MARK)

        search.look("whole", b"x " + write(secret))
        search.look("cut", b"x " + write(secret[: len(MARK) + 2]))
        search.look("none", write("a bird of another kind"))

        assert search.found == [("whole", "it"), ("cut", "one of the planted")]

    def test_reads_files_as_they_are(self, tmp_path: Path) -> None:
        """Bytes that are no text are no reason to pass a file over."""
        path = tmp_path / "file"
        path.write_bytes(b"\xff\xfe" + MARK.encode() + b"\x00")
        search = Search([("it", MARK)])

        search.look("file", path.read_bytes())

        assert search.found == [("file", "it")]
