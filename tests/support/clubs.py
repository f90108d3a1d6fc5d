"""A world whose account is connected at the authorisation server, with tokens to be renewed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from secrets import token_urlsafe
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from sqlalchemy import Row

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.process_context import ProcessContext
from oncefence.app.bootstrap import make_context
from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.authorization import Authority, Flow, Retirement
from oncefence.domain.grant import GrantRotation
from oncefence.domain.ids import BindingGenerationId, LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.redaction import Secret
from oncefence.storage import binding_generations
from oncefence.storage.claims import NotStarted
from oncefence.storage.generation_change import NewTokens, follow
from oncefence.storage.phases.add_provider_app import add_provider_app
from oncefence.storage.phases.begin_refresh import RefreshBegun, begin_refresh
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.settle_refresh import RefreshEnd, RefreshSettled, settle_refresh
from oncefence.storage.sealing import KeyRing
from tests.support.dialect import Form
from tests.support.oauth_server import APP, CLIENT, CLIENT_SECRET, Family, OAuthServer, Rotation
from tests.support.servers import Database
from tests.support.station import FAST, ProviderWorld
from tests.support.world import Accepted

ACCOUNT = "club-a"


class ClubsWorld(ProviderWorld):
    """An org whose principal has a grant, with the tokens that its account gave once."""

    server: OAuthServer
    generation: BindingGenerationId
    rotation: GrantRotation
    family: Family

    @classmethod
    async def connected(
        cls,
        database: Database,
        server: OAuthServer,
        *,
        grant: str = "app",
        rotation: GrantRotation = GrantRotation.ROTATING,
        is_fresh: bool = False,
        limits: Limits = FAST,
        view: IntegrationBindingView | None = None,
        ring: KeyRing | None = None,
        base_url: str | None = None,
    ) -> "ClubsWorld":
        """A world whose token has expired, unless it is to be fresh."""
        provider = server.as_provider()
        if base_url is not None:
            provider = replace(provider, base_url=base_url)
        world = await cls.on(database, provider, limits=limits, view=view, ring=ring)
        assert isinstance(world, ClubsWorld), "made by this class"
        world.server, world.rotation = server, rotation
        is_mint = rotation is GrantRotation.MINT
        if rotation in (GrantRotation.ROTATING, GrantRotation.STATIC, GrantRotation.GRACE):
            server.rotation = Rotation(rotation.value)
        world.family = Family(
            account=ACCOUNT,
            client=APP if is_mint else CLIENT,
            scopes="",
            refresh=None if is_mint else f"refresh-{token_urlsafe(24)}",
            access={f"access-{token_urlsafe(24)}"},
        )
        server.families.append(world.family)
        await add_provider_app(
            world.engine,
            world.ring,
            world.org,
            provider=world.view.pack,
            pack_grant=grant,
            flow=Flow.MINT if is_mint else Flow.OAUTH2,
            client_id=APP if is_mint else CLIENT,
            secret=Secret(server.key_pem() if is_mint else CLIENT_SECRET),
            actor="tests",
            note="what we are",
        )
        await world.reconnect(grant=grant, family=world.family)
        if not is_fresh:
            await world.expire_token()
        return world

    async def reconnect(
        self,
        *,
        grant: str = "app",
        family: Family,
        account: str | None = None,
        scopes: frozenset[str] = frozenset(),
    ) -> BindingGenerationId:
        """Another generation, with the tokens of `family`."""
        is_mint = self.rotation is GrantRotation.MINT
        async with self.engine.begin() as connection:
            newest = await binding_generations.lock_newest(connection, self.org, self.binding)
            self.generation = await follow(
                connection,
                self.ring,
                self.org,
                self.binding,
                newest=newest,
                because=Retirement.RECONNECTED,
                authority=Authority(
                    flow=Flow.MINT if is_mint else Flow.OAUTH2,
                    pack_grant=grant,
                    client_id=family.client,
                    account=account or family.account,
                    installation=ACCOUNT if is_mint else None,
                    scopes=scopes,
                ),
                rotation=self.rotation,
                tokens=NewTokens(
                    access=Secret(next(iter(family.access))),
                    refresh=None if family.refresh is None else Secret(family.refresh),
                    lifetime_s=1800,
                ),
            )
        return self.generation

    # --- what happens to its token -----------------------------------------------------------

    async def expire_token(self) -> None:
        """The newest token ended a minute ago, an hour after it was made."""
        await plant(
            self.database,
            "UPDATE token_versions SET made_at = clock_timestamp() - interval '61 minutes',"
            " expires_at = clock_timestamp() - interval '1 minute'"
            f" WHERE generation_id = '{self.generation}'",
        )

    async def allow_calls(self) -> None:
        """Whatever the last call asked for, the next one may come now."""
        await plant(
            self.database,
            "UPDATE authorization_grants SET not_before = NULL"
            f" WHERE generation_id = '{self.generation}'",
        )

    async def end_refresh_lease(self) -> None:
        """The lease of the renewal that is out ended a second ago, and so did its claim's."""
        await plant(
            self.database,
            "UPDATE token_refreshes SET lease_until = clock_timestamp() - interval '1 second'"
            f" WHERE generation_id = '{self.generation}' AND settled_at IS NULL",
            "UPDATE work_items SET lease_until = clock_timestamp() - interval '1 second'"
            f" WHERE org_id = '{self.org}' AND state = 'processing'",
        )

    # --- how it stands -----------------------------------------------------------------------

    async def grant_row(self) -> Row[Any]:
        """The grant of its generation."""
        (row,) = await self.sql(
            "SELECT a.*, g.token_version, g.state AS generation_state"
            " FROM oncefence.authorization_grants AS a"
            " JOIN oncefence.binding_generations AS g USING (org_id, generation_id)"
            " WHERE a.org_id = :org AND a.generation_id = :generation",
            generation=self.generation,
        )
        return row

    async def ledger(self) -> Sequence[Row[Any]]:
        """Every renewal of its generation, in order."""
        return await self.sql(
            "SELECT * FROM oncefence.token_refreshes WHERE org_id = :org"
            " AND generation_id = :generation ORDER BY started_at",
            generation=self.generation,
        )

    async def outcomes(self) -> list[str | None]:
        """What became of each renewal, in order."""
        return [row.outcome for row in await self.ledger()]

    def token_calls(self) -> int:
        """How many calls of the token endpoint came for its tokens, or mints for its account."""
        return len(
            [
                call
                for call in self.server.calls
                if call.form.get("refresh_token") in self.own_refresh_tokens()
                or call.path == f"/api/installs/{ACCOUNT}/token"
            ]
        )

    def own_refresh_tokens(self) -> set[str]:
        """All refresh tokens that its family has had."""
        spent = {token for token, of in self.server.spent.items() if of is self.family}
        return spent | ({self.family.refresh} if self.family.refresh is not None else set())

    def writes(self) -> int:
        """How many changes of a record were sent, by whatever token."""
        return sum(call.method == "PATCH" for call in self.server.calls)

    async def command(self, subject: str = "lead-1", *, rank: str = "first") -> Accepted:
        """An accepted command on `subject`; nobody is told of it."""
        return await self.accept_in(Form.LOCAL, subject, title=rank)

    # --- what is done ------------------------------------------------------------------------

    async def begin(
        self,
        accepted: Accepted | WorkId,
        *,
        token: LeaseToken | None = None,
        owner: UUID | None = None,
        may_begin: bool = True,
    ) -> RefreshBegun | NotStarted | None:
        """What the mark of a renewal says."""
        work = accepted.work if isinstance(accepted, Accepted) else accepted
        return await begin_refresh(
            self.engine,
            self.org,
            work,
            as_of=max(await self.now(), (await self.item(work)).run_after),
            owner=owner or uuid4(),
            token=token or LeaseToken(uuid4()),
            limits=self.limits,
            may_begin=may_begin,
        )

    async def begun(self, accepted: Accepted | WorkId) -> RefreshBegun:
        """A marked renewal."""
        begun = await self.begin(accepted)
        assert isinstance(begun, RefreshBegun), begun
        return begun

    async def settle_call(self, begun: RefreshBegun, end: RefreshEnd) -> RefreshSettled:
        """The renewal settled by its beginner."""
        return await settle_refresh(self.engine, self.ring, begun, end)


class ClubsProcess:
    """One start of the program on such a world, told by the test what to run."""

    def __init__(self, world: ClubsWorld) -> None:
        self.world = world
        self.woken: list[WorkRef] = []
        self.context: ProcessContext = make_context(world.engine, world.ring, self, world.limits)  # type: ignore[arg-type]  # wakes nobody
        self._attempts = AttemptActivity(self.context)
        self._lookups = LookupActivity(self.context)

    async def wake(self, ref: WorkRef) -> None:
        self.woken.append(ref)

    async def run(self, work: WorkId, *, as_of: datetime | None = None) -> RunResult:
        """One run of an item, as its workflow asks for it when it is due."""
        row = await self.world.item(work)
        request = RunRequest(
            org_id=self.world.org,
            work_id=str(work),
            deadline_ms=row.deadline_ms,
            as_of=as_of or max(await self.world.now(), row.run_after),
            family=row.family,
        )
        if row.family == "effect.lookup":
            return await self._lookups.run_lookup(request)
        return await self._attempts.run_attempt(request)


def an_hour_later(row: Row[Any]) -> datetime:
    """A time at which whatever the item waits for in due time has passed."""
    due: datetime = row.run_after
    return due + timedelta(hours=1)


async def plant(database: Database, *statements: str) -> None:
    """Write past every trigger and foreign key, as time itself would."""
    connection = await asyncpg.connect(database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute("SET LOCAL search_path TO oncefence")
            for statement in statements:
                await connection.execute(statement)
    finally:
        await connection.close()
