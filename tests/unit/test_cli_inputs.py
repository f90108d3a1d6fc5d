"""What the verbs take from the command line and from files, and how they show it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from oncefence.app.cli import arguments
from oncefence.app.cli.binding import read_token
from oncefence.app.cli.screen import json_text, printable, shown
from oncefence.app.origin import check_origin
from oncefence.domain.errors import ConfigurationRefused


class TestToken:
    def read(self, folder: Path, content: bytes, mode: int = 0o600) -> str:
        path = folder / "token"
        path.write_bytes(content)
        path.chmod(mode)
        return read_token(path).reveal()

    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
    def test_is_what_stands_before_the_line_end(self, tmp_path: Path, end: bytes) -> None:
        """Editors end the last line, and no token ends with one."""
        assert self.read(tmp_path, b"pat-na1-0815" + end) == "pat-na1-0815"

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (b"", "is empty"),
            (b"\n", "is empty"),
            (b"\r\n", "is empty"),
            (b"two\nlines", "holds blanks, line ends"),
            (b"token\n\n", "holds blanks, line ends"),
            (b"a token", "holds blanks, line ends"),
            (b"tok\0en", "holds blanks, line ends"),
            ("töken".encode(), "characters beyond ASCII"),
            (b"t" * 16_385, "has more than 16384 bytes"),
        ],
    )
    def test_that_no_header_could_carry_is_refused(
        self, tmp_path: Path, content: bytes, complaint: str
    ) -> None:
        """It would fail at the first send, days later, and look like the provider's fault."""
        with pytest.raises(ConfigurationRefused, match=complaint) as refusal:
            self.read(tmp_path, content)

        assert "töken" not in str(refusal.value)

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
    def test_that_others_can_reach_is_refused(self, tmp_path: Path, mode: int) -> None:
        """A token that everybody on the machine can read is no secret."""
        with pytest.raises(ConfigurationRefused, match="chmod 600"):
            self.read(tmp_path, b"token", mode)


class TestOrigin:
    @pytest.mark.parametrize(
        "url", ["https://api.example.com", "https://api.example.com:8443/", "https://[2606::1]"]
    )
    def test_of_a_provider_is_taken(self, url: str) -> None:
        """Stored without the slash that some people write."""
        assert check_origin(url, is_local=False) == url.rstrip("/")

    @pytest.mark.parametrize(
        ("url", "complaint"),
        [
            ("http://api.example.com", "Give an https:// URL, or say --local"),
            ("https://api.example.com/v3", "Give scheme, host and perhaps port"),
            ("https://user@api.example.com", "Give scheme, host and perhaps port"),
            ("ftp://api.example.com", "Give scheme, host and perhaps port"),
            ("api.example.com", "Give scheme, host and perhaps port"),
            ("https://", "Give scheme, host and perhaps port"),
        ],
    )
    def test_that_no_request_could_go_to_is_refused(self, url: str, complaint: str) -> None:
        """The same rule as that of each send, told before anything is stored."""
        with pytest.raises(ConfigurationRefused, match=complaint):
            check_origin(url, is_local=False)


class TestArguments:
    @pytest.mark.parametrize("text", ["", "Acme", "-acme", "a" * 64, "a.b", "ac\n", "äcme"])
    def test_a_name_that_no_key_could_hold_is_refused(self, text: str) -> None:
        """An org of that name could never hand anything over."""
        with pytest.raises(typer.BadParameter):
            arguments.name(text)

    @pytest.mark.parametrize("text", ["", "x" * 257, "a\x1bb", "a\x85b", "\udcff"])
    def test_an_identity_that_cannot_be_shown_or_kept_is_refused(self, text: str) -> None:
        """It would stand on screens and in requests."""
        assert arguments.problem_of_identity(text) is not None

    @pytest.mark.parametrize("text", ["lead:1", "ü", "x" * 256])
    def test_an_ordinary_identity_is_taken(self, text: str) -> None:
        """Local names are the Runtime's to choose."""
        assert arguments.problem_of_identity(text) is None


class TestScreen:
    @pytest.mark.parametrize(
        ("text", "seen"),
        [
            ("plain é 🚀 مديرة", "plain é 🚀 مديرة"),
            ("\x1b[2J", "\\x1b[2J"),
            ("two\nlines\r", "two\\nlines\\r"),
            ("a\u202eb", "a\\u202eb"),
            ("\udcff", "\\udcff"),
        ],
    )
    def test_what_would_act_is_shown_instead(self, text: str, seen: str) -> None:
        """A subject must not clear a screen, forge a line or turn the text around."""
        assert printable(text) == seen

    @pytest.mark.parametrize(
        ("value", "seen"),
        [
            (None, "-"),
            (True, "yes"),
            (0, "0"),
            ({"a": "\x1b"}, '{"a": "\\u001b"}'),
            (datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), "2026-01-02 03:04:05.678+00:00"),
        ],
    )
    def test_values_read_as_people_write_them(self, value: object, seen: str) -> None:
        """One page is read by whoever is on call at night."""
        assert shown(value) == seen

    def test_json_refuses_what_it_has_no_form_for(self) -> None:
        """A sealed column that slipped in must fail, not be printed."""
        with pytest.raises(TypeError, match="bytes has no JSON form"):
            json_text({"ciphertext": b"x"})
