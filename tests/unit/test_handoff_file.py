"""A file of handoffs: each line judged alone, and its payload taken as it was written."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.app.handoff_file import (
    LINE_BYTES_MAX,
    HandoffFileRefused,
    HandoffLine,
    RefusedLine,
    read_handoff_file,
    read_handoff_line,
)
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.payload import PAYLOAD_BYTES_MAX
from oncefence.catalog.view import compile_view

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
GOOD = b'{"outbox_id": "o-1", "operation": "lead.title.push", "subject": "lead:1", "payload": {}}'


def line_of(payload: bytes, **changes: object) -> bytes:
    members = {"outbox_id": "o-1", "operation": "lead.title.push", "subject": "lead:1"} | changes
    head = json.dumps({name: value for name, value in members.items() if value is not None})
    return head.encode()[:-1] + b', "payload": ' + payload + b"}"


def reason_of(line: bytes) -> str:
    read = read_handoff_line(7, line)
    assert isinstance(read, RefusedLine), read
    assert read.number == 7
    return read.reason


def payload_of(line: bytes) -> bytes:
    read = read_handoff_line(1, line)
    assert isinstance(read, HandoffLine), read
    return read.payload


class TestLine:
    def test_gives_its_four_members(self) -> None:
        """What is written is what is handed over."""
        read = read_handoff_line(3, line_of(b'{"title": "Chief"}'))

        assert isinstance(read, HandoffLine)
        assert (read.number, read.outbox, read.operation, read.subject, read.payload) == (
            3,
            "o-1",
            "lead.title.push",
            "lead:1",
            b'{"title": "Chief"}',
        )

    @pytest.mark.parametrize(
        "payload",
        [
            b"{}",
            b'{ "title" :\t"x" }',
            b'{"b":1,"a":2}',
            b'{"n": 1.10, "m": 1e2, "k": -0}',
            rb'{"title": "\u00e9 \ud83d\ude80 \/ \" }{ ]["}',
            '{"title": "é 🚀 e\u0301 \u2028"}'.encode(),
            b'{"payload": {"payload": [1, {"payload": null}]}}',
            b'{"n": 9007199254740992}',
        ],
    )
    def test_keeps_the_payload_byte_for_byte(self, payload: bytes) -> None:
        """A digest is of bytes: another spelling of the same value would be another payload."""
        assert payload_of(line_of(payload)) == payload

    def test_finds_the_payload_wherever_it_stands(self) -> None:
        """Members have no order, and another member may hold the same text."""
        line = (
            rb' { "pay\u006coad" : {"a": "}"} , "subject":"\"payload\": {}","outbox_id":"o",'
            b'"operation":"p"}\t '
        )

        assert payload_of(line) == b'{"a": "}"}'

    @given(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers(-(2**53), 2**53)
                | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
                lambda inner: st.lists(inner, max_size=3),
                max_leaves=5,
            ),
            max_size=4,
        ),
        st.booleans(),
    )
    def test_keeps_any_payload(
        self, value: dict[str, object], is_ascii: bool
    ) -> None:  # hypothesis gives it by place
        """Whatever can be written as JSON comes out as it went in."""
        payload = json.dumps(value, ensure_ascii=is_ascii).encode()

        assert payload_of(line_of(payload)) == payload

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b"{", "the line is not JSON"),
            (b"[]", "the line must be a JSON object"),
            (b'"x"', "the line must be a JSON object"),
            (GOOD + GOOD, "the line is not JSON (Extra data"),
            (GOOD[:-1] + b"\xff}", "the line is not UTF-8 (byte 87)"),
            (b"\xef\xbb\xbf" + GOOD, "the line begins with a byte order mark"),
            (b"{}", "the line lacks outbox_id, operation, subject, payload"),
            (line_of(b"{}", subject=None), "the line lacks subject"),
            (line_of(b"{}", colour="red"), "colour is no member of a line"),
            (line_of(b"{}")[:-1] + b', "subject": "lead:2"}', "subject is given twice"),
            (line_of(b'{"a": 1, "a": 1}'), "payload.a is given twice"),
            (line_of(b"{}", outbox_id=7), "outbox_id must be text"),
            (line_of(b"{}", outbox_id=""), "outbox_id is empty"),
            (line_of(b"{}", subject="s" * 257), "subject has 257 characters; at most 256"),
            (line_of(b"{}", operation="o" * 101), "operation has 101 characters; at most 100"),
            (line_of(b"[]"), "payload must be a JSON object"),
            (line_of(b"null"), "payload must be a JSON object"),
            (line_of(b'{"n": NaN}'), "payload.n NaN is not JSON"),
            (line_of(b'{"n": -Infinity}'), "payload.n -Infinity is not JSON"),
            (line_of(b'{"n": 9007199254740993}'), "payload.n is a number beyond 2^53"),
            (line_of(b'{"n": 1e400}'), "payload.n is a number out of range"),
            (line_of(rb'{"t": "\u0000"}'), "payload.t the text holds U+0000"),
            (line_of(rb'{"t": "\ud800"}'), "payload.t the text holds half of a surrogate pair"),
            (line_of(b'{"t": "\x01"}'), "the line is not JSON (Invalid control character"),
            (line_of(b"{}", subject="\udc00"), "subject the text holds half of a surrogate pair"),
            (line_of(b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}"), "the line is nested more than"),
            (
                line_of(b'{"t": "' + b"x" * PAYLOAD_BYTES_MAX + b'"}'),
                f"payload has {PAYLOAD_BYTES_MAX + 9} bytes; at most {PAYLOAD_BYTES_MAX} are taken",
            ),
        ],
    )
    def test_that_breaks_a_rule_says_which(self, line: bytes, reason: str) -> None:
        """Whoever wrote the line has to find the place (C12, C155, C582)."""
        assert reason_of(line).startswith(reason)

    def test_never_repeats_a_value(self) -> None:
        """A reason ends up on a screen and in a log; the payload must not."""
        reasons = [
            reason_of(line_of(b'{"secret-value": "secret-value", "n": NaN}')),
            reason_of(line_of(b'{"t": "secret-value", "t": "secret-value"}')),
            reason_of(line_of(b'["secret-value"]')),
            reason_of(line_of(b"{}", subject=["secret-value"])),
        ]

        assert not [reason for reason in reasons if "secret-value" in reason]


class TestFile:
    def read(self, folder: Path, content: bytes) -> list[HandoffLine | RefusedLine]:
        path = folder / "handoffs.jsonl"
        path.write_bytes(content)
        return list(read_handoff_file(path))

    def test_is_read_line_by_line(self, tmp_path: Path) -> None:
        """A bad line hurts only itself, and numbers are those of an editor."""
        read = self.read(tmp_path, b"\n".join([GOOD, b"bad", b"", b" \t", GOOD]))

        assert [(line.number, isinstance(line, HandoffLine)) for line in read] == [
            (1, True),
            (2, False),
            (5, True),
        ]

    @pytest.mark.parametrize(
        "content",
        [GOOD + b"\n", GOOD, GOOD + b"\r\n", b"\xef\xbb\xbf" + GOOD + b"\r\n", b"\r\n" + GOOD],
    )
    def test_may_have_any_line_ends_and_a_mark(self, tmp_path: Path, content: bytes) -> None:
        """Editors differ in these, and none of them belongs to a line."""
        (line,) = self.read(tmp_path, content)

        assert isinstance(line, HandoffLine)
        assert line.payload == b"{}"

    def test_refuses_a_mark_that_is_not_at_its_beginning(self, tmp_path: Path) -> None:
        """Files that were joined: there the mark would be part of the JSON."""
        read = self.read(tmp_path, GOOD + b"\n\xef\xbb\xbf" + GOOD)

        assert [type(line) for line in read] == [HandoffLine, RefusedLine]

    def test_passes_over_a_line_of_any_length(self, tmp_path: Path) -> None:
        """A file without line ends must not fill the memory, and the line after it is sound."""
        long = b"x" * (3 * LINE_BYTES_MAX)
        exact = GOOD + b" " * (LINE_BYTES_MAX - len(GOOD))

        read = self.read(tmp_path, b"\r\n".join([long, exact, exact + b" ", GOOD, long]))

        assert [(line.number, type(line)) for line in read] == [
            (1, RefusedLine),
            (2, HandoffLine),
            (3, RefusedLine),
            (4, HandoffLine),
            (5, RefusedLine),
        ]
        assert read[0] == RefusedLine(
            number=1, reason=f"the line has more than {LINE_BYTES_MAX} bytes"
        )

    @pytest.mark.parametrize("content", [b"", b"\n\n", b" \r\n\t", b"\xef\xbb\xbf"])
    def test_without_a_line_is_refused(self, tmp_path: Path, content: bytes) -> None:
        """Nothing to do is a mistake of whoever wrote the file, and says so."""
        with pytest.raises(HandoffFileRefused, match="holds no line"):
            self.read(tmp_path, content)

    def test_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        """The path and the system's own reason."""
        with pytest.raises(HandoffFileRefused, match=r"none\.jsonl: cannot be read \(No such file"):
            list(read_handoff_file(tmp_path / "none.jsonl"))
        with pytest.raises(HandoffFileRefused, match=r"cannot be read \(Is a directory"):
            list(read_handoff_file(tmp_path))


class TestExample:
    def test_has_lines_that_all_become_requests(self) -> None:
        """The first file that a newcomer sees must work, with every awkward title in it."""
        view = compile_view(
            load_pack("hubspot"), load_binding(EXAMPLES / "lead-title.binding.toml")
        )
        operation = view.operation("lead.title.push")

        lines = list(read_handoff_file(EXAMPLES / "lead-title-changes.jsonl"))

        assert len(lines) == 25
        titles = []
        for line in lines:
            assert isinstance(line, HandoffLine), line
            operation.check_subject(line.subject)
            request = operation.freeze(line.payload, remote_id="101", command=UUID(int=0))
            titles.append(json.loads(request.body)["properties"]["jobtitle"])
        assert titles == [json.loads(line.payload)["title"] for line in lines]

    def test_has_one_subject_twice(self) -> None:
        """Two changes of one record show that the order is kept."""
        lines = list(read_handoff_file(EXAMPLES / "lead-title-changes.jsonl"))
        subjects = [line.subject for line in lines if isinstance(line, HandoffLine)]

        assert len(subjects) - len(set(subjects)) == 1
        assert len({line.outbox for line in lines if isinstance(line, HandoffLine)}) == 25
