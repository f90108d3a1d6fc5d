"""What is sealed opens in its own row, org, version and field, and nowhere else (C296)."""

import asyncio
from collections.abc import AsyncIterator
from itertools import product

import pytest
import pytest_asyncio
from cryptography.exceptions import InvalidTag
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.sealing import KeyRing
from tests.support import servers
from tests.support.sealed import NOT_SEALED, Box, Content, a_request, boxes, stocked
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

RING = KeyRing({"one": b"1" * 32, "two": b"2" * 32})
OTHER_ORDER = KeyRing({"two": b"2" * 32, "one": b"1" * 32})
NOT_OPENED = (InvalidTag, ConfigurationRefused)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stock(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as database:
        for ring in (RING, RING, OTHER_ORDER):
            await a_request(await stocked(database, ring), ring)
        yield database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_boxes(stock: Database) -> list[Box]:
    return await boxes(stock.app_engine)


async def test_every_column_of_bytes_is_known(stock: Database, all_boxes: list[Box]) -> None:
    """A new sealed column that nobody tries here would be one that nobody has tried."""
    async with stock.app_engine.connect() as connection:
        columns = {
            f"{row.table_name}.{row.column_name}"
            for row in await connection.execute(
                text(
                    "SELECT table_name, column_name FROM information_schema.columns"
                    " WHERE table_schema = 'oncefence' AND data_type = 'bytea'"
                )
            )
        }
    wrapping = {each for each in columns if each.endswith(".wrapped_key")}
    tried = {box.column for box in all_boxes}

    assert columns - wrapping - tried <= NOT_SEALED
    assert tried - {"org_keys.wrapped_key"} == columns - wrapping - NOT_SEALED
    # A data key of each of these tables is used by the boxes of its content.
    assert {each.partition(".")[0] for each in wrapping} == {
        "org_keys",
        "execution_keys",
        "staged_payloads",
        "binding_generations",
        "provider_apps",
        "authorization_requests",
    }


async def test_each_opens_in_its_own_place(all_boxes: list[Box]) -> None:
    """Else nothing below would mean anything."""
    assert all(box.opened(RING) for box in all_boxes)
    assert len({box.column for box in all_boxes}) == 7


async def test_none_opens_in_any_other_place(all_boxes: list[Box]) -> None:
    """Moved with or without its wrapped key, by whoever can write rows, it is worth nothing."""
    opened = []
    for place, moved in product(all_boxes, all_boxes):
        if place is moved:
            continue
        alone = Content(
            ciphertext=moved.content.ciphertext,
            wrapped=place.content.wrapped,
            key_id=place.content.key_id,
        )
        # An org's key has no ciphertext beside it that could be moved alone.
        for content in (alone, moved.content) if place.content.ciphertext else (moved.content,):
            try:
                place.opened(RING, content)
            except NOT_OPENED:
                continue
            opened.append((place.column, place.identity, moved.column, moved.identity))

    assert opened == []
    assert len(all_boxes) > 25


@given(st.data())
async def test_none_opens_when_anything_of_it_is_another(
    all_boxes: list[Box], data: st.DataObject
) -> None:
    """A bit of the ciphertext or of the wrapped key, or the key's name: any of it is damage."""
    box = data.draw(st.sampled_from(all_boxes), label="box")
    parts = ["wrapped", "key_id"] + (["ciphertext"] if box.content.ciphertext else [])
    part = data.draw(st.sampled_from(parts), label="part")
    changed = {
        "ciphertext": box.content.ciphertext,
        "wrapped": box.content.wrapped,
        "key_id": box.content.key_id,
    }
    if part == "key_id":
        changed["key_id"] = "two" if box.content.key_id == "one" else "one"
    else:
        value = bytearray(getattr(box.content, part))
        at = data.draw(st.integers(0, len(value) * 8 - 1), label="bit")
        value[at // 8] ^= 1 << (at % 8)
        changed[part] = bytes(value)
    await asyncio.sleep(0)

    with pytest.raises(NOT_OPENED):
        box.opened(RING, Content(**changed))  # type: ignore[arg-type]  # a dict of three types


async def test_an_earlier_version_does_not_open_as_the_one_in_use(stock: Database) -> None:
    """A row put back would otherwise bring a token back that was exchanged."""
    async with stock.app_engine.connect() as connection:
        earlier = (
            await connection.execute(
                text(
                    "SELECT t.org_id, t.ciphertext FROM oncefence.token_versions AS t"
                    " JOIN oncefence.binding_generations AS g USING (org_id, generation_id)"
                    " WHERE t.version < g.token_version"
                )
            )
        ).all()
    in_use = {
        box.identity[0]: box
        for box in await boxes(stock.app_engine)
        if box.column == "token_versions.ciphertext"
    }

    assert len(earlier) == len(in_use) == 3
    for row in earlier:
        box = in_use[row.org_id]
        with pytest.raises(InvalidTag):
            box.opened(
                RING,
                Content(
                    ciphertext=row.ciphertext,
                    wrapped=box.content.wrapped,
                    key_id=box.content.key_id,
                ),
            )
