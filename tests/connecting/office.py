"""An office: an operator at the doors, a person at a browser, and the work of their org."""

import json
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx

from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import compile_view
from oncefence.domain.authorization import Flow
from oncefence.domain.command import Handover
from oncefence.domain.handoff import EffectHandoffKey, payload_digest
from oncefence.domain.ids import OrgId, OutboxId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.operator import Role
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.add_provider_app import add_provider_app
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.authenticate import authenticate
from oncefence.storage.phases.begin_revocation import BegunRevocation, begin_revocation
from oncefence.storage.phases.disconnect_binding import disconnect_binding
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.phases.stage_payload import stage_payload
from oncefence.storage.principal_bindings import binding_id
from tests.storage.racing import all_at_once
from tests.support.books import BooksWorld
from tests.support.doors import OpenDoor, rows, until
from tests.support.oauth_server import (
    APP,
    CLIENT,
    CLIENT_SECRET,
    CLUBS,
    CLUBS_BINDING,
    TOKEN_OF_A_PERSON,
    OAuthServer,
)
from tests.support.servers import Database
from tests.support.world import INSTALLATION, Accepted, scope_of

NOTE = {"note": "asked for by the sales team"}
NAME = "clubs-main"
CALLBACK = "/v1/oauth/callback"
OPERATION = "contact.rank.push"


class ClubWorld(BooksWorld):
    """A world whose account is connected, and not made with it."""

    async def rank(self, subject: str = "contact-1", *, rank: str = "gold") -> Accepted:
        """An accepted change of a member's rank."""
        if subject not in self.links:
            self.links[subject] = await adopt_link(
                self.engine,
                self.org,
                binding_name=NAME,
                local_object="contact",
                subject=subject,
                remote_object="member",
                remote_id=self.provider.make_record(),
                actor="tests",
            )
        payload = json.dumps({"rank": rank}).encode()
        digest = payload_digest(payload)
        await stage_payload(self.engine, self.ring, self.caller, digest, payload)
        entry = OutboxId(uuid.uuid4().hex)
        return await self.take(
            Handover(
                key=EffectHandoffKey.for_outbox(self.caller.scope, entry),
                outbox=entry,
                digest=digest,
                operation=OPERATION,
                subject=subject,
            )
        )


@dataclass(kw_only=True)
class Office:
    """What a test does, as the operator, as the person, or by looking at the database."""

    door: OpenDoor
    provider: OAuthServer
    database: Database
    org: str
    operator: httpx.AsyncClient
    browser: httpx.AsyncClient
    world: ClubWorld = field(repr=False)

    # --- as the operator ---------------------------------------------------------------------

    async def ask(self, verb: str, **body: object) -> httpx.Response:
        """An act on the accounts."""
        given = {"org": self.org, "name": NAME, **NOTE} | body
        return await self.operator.post(f"/v1/operator/bindings/{verb}", json=given)

    async def ask_to_connect(self, *, grant: str = "app", **body: object) -> httpx.Response:
        given: dict[str, object] = {
            "provider": "clubs",
            "grant": grant,
            "base_url": self.provider.base_url,
            "local": True,
        }
        return await self.ask("connect", **(given | body))

    async def begun(self, **body: Any) -> Mapping[str, Any]:
        """A request that is open."""
        answer = await self.ask_to_connect(**body)
        assert answer.status_code == 201, answer.text
        document: Mapping[str, Any] = answer.json()
        return document

    async def shown(self, name: str = NAME, **query: str) -> Mapping[str, Any]:
        """The binding as an operator sees it."""
        answer = await self.operator.get(
            f"/v1/operator/bindings/{name}", params={"org": self.org, **query}
        )
        assert answer.status_code == 200, answer.text
        document: Mapping[str, Any] = answer.json()
        return document

    async def version(self, name: str = NAME, **query: str) -> str:
        return str((await self.shown(name, **query))["binding"]["version"])

    async def outcome(self, begun: Mapping[str, Any]) -> tuple[str, str | None]:
        """What a request came to, and why."""
        answer = await self.operator.get(
            f"/v1/operator/authorizations/{begun['request_id']}", params={"org": self.org}
        )
        report = answer.json()
        return report["outcome"], report["failure_class"]

    # --- as the person -----------------------------------------------------------------------

    async def consent(self, begun: Mapping[str, Any]) -> str:
        """Where the provider's page sends the browser back to."""
        return await self.provider.consent(begun["url"])

    async def come_back(self, address: str) -> httpx.Response:
        """The browser goes where it was sent."""
        return await self.browser.get(address)

    async def connect(self, account: str = "club-a", **body: Any) -> Mapping[str, Any]:
        """An account that is connected, from the operator's wish to the person's last page."""
        self.provider.consents_as = account
        begun = await self.begun(**body)
        page = await self.come_back(await self.consent(begun))
        assert page.status_code == 200, page.text
        return begun

    async def reconnect(self, account: str, **body: Any) -> Mapping[str, Any]:
        return await self.connect(account, expected_version=await self.version(), **body)

    # --- in the database ---------------------------------------------------------------------

    async def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        return await rows(self.database.admin_url, query, *values)

    async def rows_of(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table that belong to the org."""
        return await self.rows(f"SELECT * FROM oncefence.{table} WHERE org_id = $1", self.org)

    async def requests(self) -> list[dict[str, Any]]:
        """What was asked to be connected in the org, oldest first."""
        return await self.rows(
            "SELECT * FROM oncefence.authorization_requests WHERE org_id = $1 ORDER BY made_at",
            self.org,
        )

    async def database_as_owner(self, statement: str, *values: object) -> None:
        """A change that no guard would permit, behind them all."""
        connection = await asyncpg.connect(self.database.admin_url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(statement, *values)
        finally:
            await connection.close()

    async def expire(self, begun: Mapping[str, Any]) -> None:
        """The time of a request has passed."""
        await self.database_as_owner(
            "UPDATE oncefence.authorization_requests"
            " SET expires_at = clock_timestamp() - interval '1 second' WHERE request_id = $1",
            uuid.UUID(begun["request_id"]),
        )

    async def pass_time(self, begun: Mapping[str, Any]) -> None:
        """Three minutes have passed since the request was used."""
        await self.database_as_owner(
            "UPDATE oncefence.authorization_requests SET used_at = used_at - interval '3 minutes'"
            " WHERE request_id = $1",
            uuid.UUID(begun["request_id"]),
        )

    async def exchange_secret(self, secret: str) -> None:
        """Our app has another secret at the provider and here."""
        await add_provider_app(
            self.door.engine,
            self.door.ring,
            self.world.org,
            provider="clubs",
            pack_grant="app",
            flow=Flow.OAUTH2,
            client_id=CLIENT,
            secret=Secret(secret),
            actor="tests",
            note="for a test",
        )

    async def forget_apps(self, org: str | None = None) -> None:
        """The org is no app to anybody."""
        await self.database_as_owner(
            "UPDATE oncefence.provider_apps SET retired_at = clock_timestamp()"
            " WHERE org_id = $1 AND retired_at IS NULL",
            org or self.org,
        )

    async def expire_token(self) -> None:
        """The access tokens of the org have ended."""
        await self.database_as_owner(
            "UPDATE oncefence.token_versions SET expires_at = made_at, made_at ="
            " made_at - interval '1 minute' WHERE org_id = $1",
            self.org,
        )

    async def die_before_revoking(self) -> None:
        """The account is disconnected, its revocation marked, and whoever was to call is gone."""
        ended = await disconnect_binding(
            self.door.engine,
            self.world.org,
            NAME,
            subject=None,
            keeps_key=True,
            expected_version="1.current",
            actor="tests",
            note="for a test",
        )
        begun = await begin_revocation(
            self.door.engine,
            self.door.ring,
            self.world.org,
            ended.binding,
            ended.generation,
            actor="tests",
            note="for a test",
        )
        assert isinstance(begun, BegunRevocation)

    async def add_by_hand(self) -> None:
        """An account whose token a person made and handed over."""
        await add_principal_binding(
            self.door.engine,
            self.door.ring,
            self.world.org,
            name=NAME,
            provider="clubs",
            base_url=self.provider.base_url,
            is_local=True,
            token=Secret(TOKEN_OF_A_PERSON),
            actor="tests",
        )

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition, with a bound."""
        await until(is_so)

    async def announced(self, work: WorkId) -> None:
        """Return when the item was announced to Temporal."""
        await until(lambda: any(ref.work == work for ref in self.door.announced))

    async def at_once(self, *racers: Coroutine[Any, Any, Any], lock: str) -> list[Any]:
        """What each of them came to, after all had stood before a lock on rows of the org."""
        statement = f"SELECT FROM oncefence.{lock} WHERE org_id = $1 FOR UPDATE"
        return await all_at_once(self.database, list(racers), statement, self.org)

    async def generations(self) -> list[tuple[int, str, str | None, str | None]]:
        """Ordinal, state, account and why it ended, of each generation of the org."""
        found = await self.rows(
            "SELECT ordinal, state, account, retired_because FROM oncefence.binding_generations"
            " WHERE org_id = $1 ORDER BY ordinal",
            self.org,
        )
        return [tuple(row.values()) for row in found]


async def an_office(database: Database, door: OpenDoor, provider: OAuthServer) -> Office:
    """An org with a Runtime, a published view, our apps at the provider, and nothing connected."""
    org = OrgId(f"org-{uuid.uuid4().hex[:12]}")
    engine, ring = door.engine, door.ring
    credential = await register_runtime(engine, ring, scope_of(org), actor="tests")
    caller = await authenticate(engine, ring, credential)
    assert caller is not None, "a registered credential is known"
    view = compile_view(load_pack(CLUBS), load_binding(CLUBS_BINDING))
    await publish_view(engine, org, INSTALLATION, view, actor="tests")
    for grant, flow, client, secret in (
        *((name, Flow.OAUTH2, CLIENT, CLIENT_SECRET) for name in ("app", "steady", "user")),
        ("hosted", Flow.OAUTH2, CLIENT, CLIENT_SECRET),
        ("install", Flow.MINT, APP, provider.key_pem()),
    ):
        await add_provider_app(
            engine,
            ring,
            org,
            provider="clubs",
            pack_grant=grant,
            flow=flow,
            client_id=client,
            secret=Secret(secret),
            actor="tests",
            note="for a test",
        )
    world = ClubWorld(
        database=database,
        org=org,
        ring=ring,
        caller=caller,
        credential=credential,
        binding=binding_id(org, NAME),
        limits=Limits(),
    )
    world.provider, world.view, world.remote_ids = provider.as_provider(), view, {}
    return Office(
        door=door,
        provider=provider,
        database=database,
        org=org,
        operator=await operator_of(door, org),
        browser=door.client(None),
        world=world,
    )


async def operator_of(door: OpenDoor, org: str, *roles: Role) -> httpx.AsyncClient:
    """The client of a new operator; an administrator unless told."""
    added = await add_operator(
        door.engine,
        name=f"op-{uuid.uuid4().hex[:8]}",
        roles=frozenset(roles or (Role.ADMINISTRATOR,)),
        orgs=frozenset((OrgId(org),)),
        actor="tests",
        note="for a test",
    )
    return door.client(added.token.reveal())
