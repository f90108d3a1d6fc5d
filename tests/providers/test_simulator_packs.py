"""Any pack can be played from its data alone, and the catalog finds in it what the pack says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from oncefence.app.conform.subject import Subject, subjects
from oncefence.catalog.answers import BodyReading
from oncefence.catalog.conditions import ConditionForm
from oncefence.catalog.freeze import FrozenRequest
from oncefence.catalog.loader import load_pack
from oncefence.catalog.lookup import LookupReading
from oncefence.simulator.dialects.from_pack import FromPack
from oncefence.simulator.dialects.pack_file import PackUnusable
from oncefence.simulator.dialects.pack_ids import made_id
from oncefence.simulator.dialects.planting import NotPlantable, found, satisfied
from oncefence.simulator.in_process import SimulatorHere, simulating
from tests.providers.simulated import Heard, request_bytes, talk

_OURS = Path(__file__).parents[1] / "data" / "packs"
_SHIPPED = Path(str(files("oncefence.catalog") / "packs"))
PACKS = {path.stem: path for folder in (_OURS, _SHIPPED) for path in sorted(folder.glob("*.toml"))}
OPERATIONS = [
    (name, operation) for name, path in PACKS.items() for operation in load_pack(path).operations
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One operation of a pack, and the pack played."""

    here: SimulatorHere
    subject: Subject
    record: str | None

    def freeze(self, number: int = 1, command: UUID | None = None) -> FrozenRequest:
        condition = self.subject.operation.condition
        is_time = condition is not None and condition.form is ConditionForm.HTTP_DATE
        return self.subject.freeze(
            self.record,
            command=command or uuid4(),
            number=number,
            known=datetime.now(UTC).isoformat(timespec="seconds") if is_time else None,
        )

    async def send(self, request: FrozenRequest) -> Heard:
        auth = dict([self.subject.pack.auth.header_for(self.here.token)])
        raw = request_bytes(
            request.method, request.target, request.body, headers=dict(request.headers) | auth
        )
        return await asyncio.to_thread(talk, self.here.simulator.port, raw)

    def read(self, heard: Heard) -> BodyReading:
        return self.subject.operation.response.read_body(
            heard.status or 0, heard.headers, heard.body, self.record
        )

    async def look(
        self, request: FrozenRequest, command: UUID, record: str | None
    ) -> tuple[LookupReading, str | None]:
        lookup = self.subject.operation.lookup
        assert lookup is not None
        is_create = self.subject.operation.is_create
        asked = lookup.request(None if is_create else record, request.written, command=command)
        heard = await self.send(asked)
        finding = lookup.judge(
            heard.status or 0,
            heard.body,
            written=request.written,
            mark_time=datetime.now(UTC) - timedelta(seconds=30),
            remote_id=None if is_create else record,
            command=command,
        )
        return finding.reading, finding.remote_id


@asynccontextmanager
async def scene(pack: str, operation: str) -> AsyncIterator[Scene]:
    [subject] = subjects(load_pack(PACKS[pack]), only=operation)
    async with simulating(PACKS[pack]) as here:
        record = None
        if not subject.operation.is_create:
            record = here.add_record(object_name=subject.definition.object).id
        yield Scene(here=here, subject=subject, record=record)


class TestWrites:
    @pytest.mark.parametrize(("pack", "operation"), OPERATIONS)
    async def test_are_seen_as_done_by_the_catalog(self, pack: str, operation: str) -> None:
        """The answer holds all the evidence that the pack asks for, and the record the values."""
        async with scene(pack, operation) as it:
            command = uuid4()
            request = it.freeze(command=command)

            heard = await it.send(request)
            reading = it.read(heard)

            assert heard.status in it.subject.operation.response.success, heard.body
            assert (reading.parseable, reading.evidence_present) == (True, True)
            assert (reading.identity_matches, reading.declares_refusal) == (True, False)
            [change] = it.here.changes()
            made = reading.remote_id if it.subject.operation.is_create else it.record
            assert change.contact == made
            assert {name for name in change.properties if name[0] != "{"} == set(request.written)
            if it.subject.operation.lookup is not None:
                assert await it.look(request, command, made) == (LookupReading.EQUAL, made)

    @pytest.mark.parametrize(("pack", "operation"), OPERATIONS)
    async def test_that_are_not_done_are_not_seen(self, pack: str, operation: str) -> None:
        """Before the write, and after one that was turned away, the lookup says so."""
        async with scene(pack, operation) as it:
            command = uuid4()
            request = it.freeze(command=command)
            it.here.strike("server_error_before_commit", status=503)

            heard = await it.send(request)

            assert heard.status == 503
            assert it.here.changes() == []
            if it.subject.operation.lookup is not None:
                reading, _ = await it.look(request, command, it.record)
                assert reading in {
                    LookupReading.DIFFERENT_UNCHANGED,
                    LookupReading.DIFFERENT_NO_CHANGE_TIME,
                    LookupReading.NO_MATCH,
                }

    @pytest.mark.parametrize(("pack", "operation"), OPERATIONS)
    async def test_with_an_error_inside_are_no_success(self, pack: str, operation: str) -> None:
        """A status alone convinces nobody."""
        async with scene(pack, operation) as it:
            it.here.strike("error_inside_200")

            reading = it.read(await it.send(it.freeze()))

            assert not reading.evidence_present or reading.declares_refusal

    @pytest.mark.parametrize(("pack", "operation"), OPERATIONS)
    async def test_of_a_record_that_is_gone_are_refused(self, pack: str, operation: str) -> None:
        """With a status that the pack knows for final, where it knows one."""
        async with scene(pack, operation) as it:
            if it.record is None:
                wrong = await it.send(_with_another_body(it.freeze()))
                assert wrong.status in {400, 415, 422}
                return
            kind = it.subject.definition.object
            gone = made_id(it.subject.pack.objects[kind].remote_id, 99)
            request = it.subject.freeze(gone, command=uuid4(), number=1)

            assert (await it.send(request)).status in {404, 410, 422}
            assert it.here.changes() == []


def _with_another_body(request: FrozenRequest) -> FrozenRequest:
    return FrozenRequest(
        method=request.method,
        target=request.target,
        headers=request.headers,
        body=b'{"surprise":1}',
        written={},
    )


class TestConditions:
    async def test_let_only_the_known_version_through(self) -> None:
        """A record that has a version moves it with each change, and refuses an older one."""
        async with scene("quarry", "stone.set") as it:
            assert it.record is not None
            request = it.freeze()
            version = dict(request.headers)["If-Match"]
            it.here.edit(it.record, {"{version}": version})

            first, second = await it.send(request), await it.send(request)

            assert (first.status, second.status) == (204, 412)
            assert len(it.here.changes()) == 1


class TestKeys:
    async def test_are_kept_as_long_as_the_pack_says(self) -> None:
        """The window, the header and the mark are all data."""
        async with scene("books", "account.change") as it:
            command = uuid4()
            request = it.freeze(command=command)
            answers = [await it.send(request), await it.send(request)]
            it.here.advance_clock(86_400)
            answers.append(await it.send(request))

            marks = [heard.headers.get("x-replayed") for heard in answers]
            assert marks == [None, "true", None]
            assert len(it.here.changes()) == 2


class TestUnique:
    async def test_properties_belong_to_one_record(self) -> None:
        """A lookup by what is unique is only sound where the provider holds it unique."""
        async with scene("books", "account.open") as it:
            first, second = await it.send(it.freeze()), await it.send(it.freeze())

            assert (first.status, second.status) == (201, 400)
            assert len(it.here.changes()) == 1


class TestReading:
    def pack(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": "x",
            "objects": {"thing": {"remote_id": "[0-9]+", "fields": {"a": {}}}},
            "operations": {
                "thing.set": {
                    "object": "thing",
                    "method": "PATCH",
                    "path": "/{remote_id}",
                    "request": {"body": "{fields}"},
                    "answer": {"success": [200], "evidence": ["id"], "identity": "id"} | changes,
                }
            },
        }

    def test_takes_tables_as_well_as_a_file(self) -> None:
        """Whoever has read the pack need not write it down again."""
        assert FromPack(self.pack()).name == "x"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"evidence": ["length(a) > `1`"]}, r"operations.thing.set: comparator"),
            ({"success": []}, r"pack: operations.thing.set.answer.success: "),
            ({"identity": "]"}, r"operations.thing.set: \] is no JMESPath"),
        ],
    )
    def test_of_what_cannot_be_played_names_the_key(
        self, changes: dict[str, Any], message: str
    ) -> None:
        """At the start and not at the first request."""
        with pytest.raises(PackUnusable, match=message):
            FromPack(self.pack(**changes))

    def test_of_an_id_that_cannot_be_made_names_the_object(self) -> None:
        """An expression that nothing matches has no record."""
        pack = self.pack()
        pack["objects"]["thing"]["remote_id"] = "(?!x)x"

        with pytest.raises(PackUnusable, match=r"objects\.thing\.remote_id"):
            FromPack(pack)

    @pytest.mark.parametrize(("text", "message"), [("= 1", "no TOML"), ("name = 1", "name: ")])
    def test_of_a_file_names_it(self, tmp_path: Path, text: str, message: str) -> None:
        """File, key and reason."""
        path = tmp_path / "x.toml"
        path.write_text(text)

        with pytest.raises(PackUnusable, match=f"{path}: .*{message}"):
            FromPack(path)


class TestPlanting:
    @pytest.mark.parametrize(
        "expression",
        [
            "a",
            "a.b.c",
            '"a-b".c',
            "a[1].b",
            "a[-1]",
            "a | b",
            "to_string(a.b)",
            "a == 'x'",
            "a == 'x' || `null`",
            "a && b",
            "a[?b == 'x']",
            "a[*].b",
            "errors[?id == 'x'].id",
        ],
    )
    def test_makes_an_expression_hold(self, expression: str) -> None:
        """What was there before stays there."""
        document = satisfied({"kept": 1}, expression)

        assert found(document, expression)
        assert document["kept"] == 1

    @pytest.mark.parametrize("expression", ["a < b", "!a", "sort(a)", "a == b"])
    def test_says_what_it_cannot(self, expression: str) -> None:
        """A document that only looks right would make every check of it worthless."""
        with pytest.raises(NotPlantable):
            satisfied({"a": 1}, expression)


@pytest.mark.parametrize(
    "pattern",
    [r"[1-9][0-9]{0,18}", r"cus_[A-Za-z0-9]{1,250}", r"(?:a|b)-\d+", r"[^x]{3}", r"\w+z?"],
)
def test_ids_are_made_from_their_pattern(pattern: str) -> None:
    """Different numbers have different ids, and each is of the form."""
    made = [made_id(pattern, number) for number in range(20)]

    assert None not in made
    assert len(set(made)) > 10
