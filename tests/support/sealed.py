"""
Everything that rests sealed in a database: where it is, and how its own row opens it.

    box = next(each for each in await boxes(engine) if each.column == "token_versions.ciphertext")
    box.opened(ring)                    # as its row does
    box.opened(ring, content=another)   # as its row would, if `another` had been moved there
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.authorization import Flow
from oncefence.domain.effect import Outcome
from oncefence.domain.grant import MadeBecause
from oncefence.domain.redaction import Secret
from oncefence.storage import token_versions
from oncefence.storage.phases.add_provider_app import add_provider_app
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import KeyRing
from tests.support.servers import Database
from tests.support.world import World, an_end

NOT_SEALED = frozenset(
    {
        "audit.digest",
        "audit.previous",
        "audit_heads.digest",
        "authorization_requests.state_hash",
        "commands.payload_address",
        "commands.request_body_address",
        "effect_attempts.body_address",
        "handoff_conflicts.offered_payload_address",
        "handoffs.payload_address",
        "operators.token_hash",
        "runtime_work_bindings.credential_hash",
        "runtime_work_bindings.public_key",
        "staged_payloads.payload_address",
    }
)
"""Columns of bytes that hold a digest, an HMAC or a public key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What of a row could be moved into another: ciphertext, wrapped key, and that one's key."""

    ciphertext: bytes
    wrapped: bytes
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One sealed value in its place."""

    column: str
    identity: tuple[str, ...]
    content: Content
    opens: Callable[[KeyRing, Content], bytes]

    def opened(self, ring: KeyRing, content: Content | None = None) -> bytes:
        """What the row reads of `content`, by default of its own."""
        return self.opens(ring, content or self.content)


async def stocked(database: Database, ring: KeyRing) -> World:
    """A world with something in every sealed column but one: the app's secret is its org's name."""
    world = await World.make(database, ring=ring)
    started = await world.start(await world.accept_command("done", title="a title"))
    (execution,) = {started.execution}
    key = await world.sql(
        "SELECT * FROM oncefence.execution_keys WHERE org_id = :org AND execution_id = :execution",
        execution=execution,
    )
    answer = ring.unwrap(key[0].wrapped_key, key[0].key_id, "execution", world.org, execution).seal(
        b"an answer", "answer", world.org, execution, started.ordinal
    )
    await world.settle(started, an_end(Outcome.ACCEPTED, sealed_answer=answer))
    await world.accept_command("waiting", title="another title")
    await world.offer("offered", title="a third title")
    await add_provider_app(
        world.engine,
        ring,
        world.org,
        provider="books",
        pack_grant="main",
        flow=Flow.OAUTH2,
        client_id="client",
        secret=Secret(f"secret of {world.org}"),
        actor="tests",
        note="for the tests",
    )
    await give_tokens(world, ring)
    return world


async def give_tokens(
    world: World, ring: KeyRing, ends: datetime | None = None, refresh_ends: datetime | None = None
) -> None:
    """The world's account was authorised anew, with a refresh token."""
    (row,) = await world.sql(
        "SELECT generation_id FROM oncefence.binding_generations WHERE org_id = :org"
    )
    async with world.engine.begin() as connection:
        await token_versions.activate_version(
            connection,
            ring,
            world.org,
            world.binding,
            row.generation_id,
            access=Secret(f"access of {world.org}"),
            refresh=Secret(f"refresh of {world.org}"),
            expires_at=ends,
            refresh_expires_at=refresh_ends,
            because=MadeBecause.REAUTHORIZED,
        )


async def boxes(engine: AsyncEngine) -> list[Box]:
    """Every sealed value that is not erased; of tokens those of the versions in use."""
    found: list[Box] = []
    async with engine.connect() as connection:
        for statement, make in _KINDS:
            for row in await connection.execute(text(statement)):
                found.extend(make(row))
    return found


async def contents(engine: AsyncEngine, ring: KeyRing) -> dict[tuple[str, ...], bytes]:
    """What `ring` opens, by place; fails where something does not open."""
    return {
        (box.column.partition(".")[0], *box.identity): box.opened(ring)
        for box in await boxes(engine)
    }


def _of_orgs(row: Row[Any]) -> list[Box]:
    def opens(ring: KeyRing, content: Content) -> bytes:
        return ring.unwrap(content.wrapped, content.key_id, "org", row.org_id).address("ab")

    return [_box("org_keys.wrapped_key", (row.org_id,), b"", row, opens)]


def _of_executions(row: Row[Any]) -> list[Box]:
    place = (row.org_id, row.execution_id)

    def opens(ring: KeyRing, content: Content) -> bytes:
        key = ring.unwrap(content.wrapped, content.key_id, "execution", *place)
        return key.open(content.ciphertext, row.kind, *place, row.ordinal)

    identity = (row.org_id, str(row.execution_id), row.kind, str(row.ordinal))
    return [_box("sealed_payloads.ciphertext", identity, row.ciphertext, row, opens)]


def _of_staging(row: Row[Any]) -> list[Box]:
    place = ("staged", row.org_id, bytes(row.payload_address).hex())

    def opens(ring: KeyRing, content: Content) -> bytes:
        key = ring.unwrap(content.wrapped, content.key_id, *place)
        return key.open(content.ciphertext, *place)

    return [_box("staged_payloads.ciphertext", place[1:], row.ciphertext, row, opens)]


def _of_tokens(row: Row[Any]) -> list[Box]:
    place = (row.org_id, row.binding_id, row.generation_id)

    def of(field: TokenField, column: str, ciphertext: bytes) -> Box:
        def opens(ring: KeyRing, content: Content) -> bytes:
            key = GenerationKey.opened(ring, content.wrapped, content.key_id, *place)
            return key.open(field, row.version, content.ciphertext).reveal().encode()

        # Not by its version: a token that is wrapped anew is the same token.
        identity = (row.org_id, str(row.generation_id), field.value)
        return _box(f"token_versions.{column}", identity, ciphertext, row, opens)

    found = [of(TokenField.ACCESS, "ciphertext", row.ciphertext)]
    if row.refresh_ciphertext is not None:
        found.append(of(TokenField.REFRESH, "refresh_ciphertext", row.refresh_ciphertext))
    return found


def _of_apps(row: Row[Any]) -> list[Box]:
    place = (row.org_id, row.app_id)

    def opens(ring: KeyRing, content: Content) -> bytes:
        key = ring.unwrap(content.wrapped, content.key_id, "provider_app", *place)
        return key.open(content.ciphertext, "app_secret", *place)

    identity = (row.org_id, str(row.app_id))
    return [_box("provider_apps.ciphertext", identity, row.ciphertext, row, opens)]


def _of_requests(row: Row[Any]) -> list[Box]:
    place = (row.org_id, row.request_id)

    def opens(ring: KeyRing, content: Content) -> bytes:
        key = ring.unwrap(content.wrapped, content.key_id, "authorization", *place)
        return key.open(content.ciphertext, "verifier", *place)

    identity = (row.org_id, str(row.request_id))
    column = "authorization_requests.verifier_ciphertext"
    return [_box(column, identity, row.verifier_ciphertext, row, opens)]


def _box(
    column: str,
    identity: tuple[str, ...],
    ciphertext: bytes,
    row: Row[Any],
    opens: Callable[[KeyRing, Content], bytes],
) -> Box:
    content = Content(ciphertext=ciphertext, wrapped=row.wrapped_key, key_id=row.key_id)
    return Box(column=column, identity=identity, content=content, opens=opens)


_KINDS: tuple[tuple[str, Callable[[Row[Any]], list[Box]]], ...] = (
    ("SELECT * FROM oncefence.org_keys", _of_orgs),
    (
        """
        SELECT s.*, k.wrapped_key, k.key_id FROM oncefence.sealed_payloads AS s
          JOIN oncefence.execution_keys AS k USING (org_id, execution_id)
         WHERE k.wrapped_key IS NOT NULL
        """,
        _of_executions,
    ),
    ("SELECT * FROM oncefence.staged_payloads WHERE wrapped_key IS NOT NULL", _of_staging),
    (
        """
        SELECT t.*, g.binding_id, g.wrapped_key, g.key_id FROM oncefence.binding_generations AS g
          JOIN oncefence.token_versions AS t ON t.org_id = g.org_id
           AND t.generation_id = g.generation_id AND t.version = g.token_version
         WHERE g.wrapped_key IS NOT NULL
        """,
        _of_tokens,
    ),
    ("SELECT * FROM oncefence.provider_apps", _of_apps),
    (
        "SELECT * FROM oncefence.authorization_requests WHERE wrapped_key IS NOT NULL",
        _of_requests,
    ),
)


async def a_request(world: World, ring: KeyRing) -> uuid.UUID:
    """A request for authorisation under way, with the other half of its challenge."""
    request = uuid.uuid4()
    key, wrapped, key_id = ring.new_key("authorization", world.org, request)
    await world.sql(
        "INSERT INTO oncefence.authorization_requests (org_id, request_id, act, flow, binding_id,"
        " name, provider, kind, base_url, is_local, pack_grant, grant_content, client_id,"
        " redirect_uri, state_hash, verifier_ciphertext, wrapped_key, key_id, expected_version,"
        " made_by, note, expires_at) VALUES (:org, :request, 'connect', 'oauth2',"
        " gen_random_uuid(), 'x', 'books', 'shared', 'http://127.0.0.1:1', true, 'main', '{}',"
        " 'client', 'http://127.0.0.1:1/', uuid_send(:request), :verifier, :wrapped, :key_id,"
        " 'absent', 'tests', 'for the tests', clock_timestamp() + interval '10 minutes')",
        request=request,
        verifier=key.seal(b"a verifier", "verifier", world.org, request),
        wrapped=wrapped,
        key_id=key_id,
    )
    return request
