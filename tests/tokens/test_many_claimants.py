"""Fifty claimants in three processes on one expired token: one call."""

import secrets

import pytest

from oncefence.domain.grant import GrantRotation
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.sealing import KeyRing
from tests.support.clubs import ClubsWorld
from tests.support.oauth_server import Fault, OAuthServer
from tests.support.servers import Database
from tests.tokens.claimants import DEADLINE_MS, KEY_ID, LIMITS, in_processes

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLAIMANTS, PROCESSES = 50, 3


async def a_world(store: Database, server: OAuthServer, **how: object) -> tuple[ClubsWorld, bytes]:
    key = secrets.token_bytes(32)
    world = await ClubsWorld.connected(
        store,
        server,
        limits=LIMITS,
        # On a busy machine fifty sends at once take their time.
        view=server.as_provider().dialect.view(local_ms=DEADLINE_MS),
        ring=KeyRing({KEY_ID: key}),
        **how,  # type: ignore[arg-type]  # of this file alone
    )
    return world, key


@pytest.mark.parametrize(
    ("grant", "rotation"),
    [("app", GrantRotation.ROTATING), ("install", GrantRotation.MINT)],
    ids=str,
)
async def test_renew_one_token_once(
    store: Database, server: OAuthServer, grant: str, rotation: GrantRotation
) -> None:
    """However many claimants in however many processes: one call, one version, all sent by it."""
    world, key = await a_world(store, server, grant=grant, rotation=rotation)
    commands = [await world.command(f"lead-{number}") for number in range(CLAIMANTS)]

    ends = await in_processes(world, key, [each.work for each in commands], processes=PROCESSES)

    assert ends == ["succeeded"] * CLAIMANTS
    assert await world.outcomes() == ["activated"]
    assert (world.token_calls(), world.writes()) == (1, CLAIMANTS)
    rows = await world.sql(
        "SELECT token_version, count(*) FILTER (WHERE outcome = 'ACCEPTED') AS sent"
        "  FROM oncefence.effect_attempts WHERE org_id = :org GROUP BY token_version"
    )
    assert [(row.token_version, row.sent) for row in rows] == [(2, CLAIMANTS)]
    (items,) = await world.sql(
        "SELECT max(claims_lost) AS lost FROM oncefence.work_items WHERE org_id = :org"
    )
    assert items.lost == 0
    assert (await audit_invariants(world.engine)).violations == 0


async def test_show_a_rotating_token_once_where_its_answer_is_lost(
    store: Database, server: OAuthServer
) -> None:
    """The herd behind the loser parks, and nobody shows the spent token again (C291)."""
    world, key = await a_world(store, server)
    commands = [await world.command(f"lead-{number}") for number in range(12)]
    server.meet(Fault.LOST)

    ends = await in_processes(world, key, [each.work for each in commands], processes=PROCESSES)

    assert ends == ["credential_held"] * 12
    assert await world.outcomes() == ["unknown"]
    assert (world.token_calls(), world.writes()) == (1, 0)
    assert (await world.grant_row()).state == "refresh_unknown"
