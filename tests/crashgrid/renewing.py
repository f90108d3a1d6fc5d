"""
A token that must be renewed before the send: where it is asked for, whose it is, and the person
who authorises the account anew when nobody can know whether it was spent.

The endpoint is the slot's, and keeps every token that was shown to it.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.authorization import Authority, Flow, Retirement
from oncefence.domain.grant import GrantRotation
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId
from oncefence.domain.redaction import Secret
from oncefence.storage import authorization_grants, binding_generations
from oncefence.storage.generation_change import NewTokens, follow, renew
from oncefence.storage.phases.add_provider_app import add_provider_app
from oncefence.storage.sealing import KeyRing
from tests.crashgrid.cell import Story

GRANT: Final = "app"
_CLIENT: Final = "grid"
_ROTATIONS: Final = {
    Story.RENEW: GrantRotation.ROTATING,
    Story.RENEW_AGAIN: GrantRotation.STATIC,
}
_PARKED = text(
    "SELECT a.generation_id, g.binding_id, g.token_version FROM oncefence.authorization_grants AS a"
    " JOIN oncefence.binding_generations AS g USING (org_id, generation_id)"
    " WHERE a.org_id = :org AND g.state = 'current'"
    "   AND a.state IN ('refresh_unknown', 'needs_reauthorization') FOR UPDATE OF g"
)


class TokenEndpoint:
    """Gives the one token that the simulator knows, and another refresh token where they rotate."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._server: asyncio.Server | None = None
        self.shown: list[str] = []
        """Every refresh token that came, in order; each is told apart by its org and number."""

    async def open(self) -> str:
        """Begin to listen; gives the base URL."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def close(self) -> None:
        """Nobody is answered any more."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            form = parse_qs((await reader.readexactly(length)).decode())
            (shown,) = form["refresh_token"]
            self.shown.append(shown)
            body = json.dumps(self._reply(shown)).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever asked is dead: what came whole is on record
        finally:
            writer.close()

    def _reply(self, shown: str) -> Mapping[str, object]:
        rotation, org, number = shown.split("/")
        reply: dict[str, object] = {"access_token": self._token, "expires_in": 1800}
        if rotation == GrantRotation.ROTATING:
            reply["refresh_token"] = refresh_token(rotation, org, int(number) + 1)
        return reply


def refresh_token(rotation: str, org: str, number: int) -> str:
    """The refresh token of an account, as the endpoint knows it."""
    return f"{rotation}/{org}/{number}"


def shown_twice(shown: Sequence[str]) -> list[Mapping[str, Any]]:
    """No token that a call uses up was ever shown to its provider twice."""
    return [
        {
            "invariant": "a_rotating_token_is_shown_once",
            "org_id": token.split("/")[1],
            "calls": count,
        }
        for token, count in Counter(shown).items()
        if count > 1 and token.startswith(f"{GrantRotation.ROTATING.value}/")
    ]


async def connect_account(
    engine: AsyncEngine,
    ring: KeyRing,
    org: OrgId,
    binding: PrincipalBindingId,
    *,
    story: Story,
    provider: str,
    base_url: str,
    token: str,
) -> None:
    """The account's tokens can be renewed, and the one that it has was refused already."""
    rotation = _ROTATIONS[story]
    await add_provider_app(
        engine,
        ring,
        org,
        provider=provider,
        pack_grant=GRANT,
        flow=Flow.OAUTH2,
        client_id=_CLIENT,
        secret=Secret("secret of the grid"),
        actor="grid",
        note="what the grid is",
    )
    async with engine.begin() as connection:
        newest = await binding_generations.lock_newest(connection, org, binding)
        generation = await follow(
            connection,
            ring,
            org,
            binding,
            newest=newest,
            because=Retirement.RECONNECTED,
            authority=Authority(
                flow=Flow.OAUTH2, pack_grant=GRANT, client_id=_CLIENT, base_url=base_url
            ),
            rotation=rotation,
            tokens=NewTokens(
                access=Secret(token),
                refresh=Secret(refresh_token(rotation.value, org, 1)),
                lifetime_s=1800,
            ),
        )
        await authorization_grants.note_refused(connection, org, generation, version=1, again=False)


async def authorise_anew(engine: AsyncEngine, ring: KeyRing, org: OrgId, token: str) -> None:
    """What a person does where the account is parked, once; nothing where it is not."""
    async with engine.begin() as connection:
        row = (await connection.execute(_PARKED, {"org": org})).one_or_none()
        if row is None:
            return
        number = 100 * (row.token_version + 1)
        await renew(
            connection,
            ring,
            org,
            BindingGenerationId(row.generation_id),
            binding=PrincipalBindingId(row.binding_id),
            tokens=NewTokens(
                access=Secret(token),
                refresh=Secret(refresh_token(GrantRotation.ROTATING.value, org, number)),
                lifetime_s=1800,
            ),
        )
