"""Grants and renewals in every state, by the names that the cases of their guards use."""

from oncefence.domain.grant import GrantRotation
from oncefence.domain.limits import Limits
from tests.support.clubs import ClubsWorld, plant
from tests.support.oauth_server import OAuthServer
from tests.support.servers import Database
from tests.tokens.ends import a_lost_answer, a_token


async def grant_facts(database: Database) -> dict[str, str]:
    """
    Each in an org of its own.

    `renewed` had its token renewed once, and a second renewal is out; `static` has its first one
    out; `lost` has lost an answer; `stale` has an expired token and an item that needs it, held by
    a claim that began no renewal; `retired` is the generation that `stale` had before.
    """
    server = OAuthServer()
    renewed = await ClubsWorld.connected(database, server, limits=Limits())
    settled = await renewed.begun(await renewed.command("lead-1"))
    await renewed.settle_call(settled, a_token())
    await renewed.expire_token()
    await renewed.allow_calls()
    out = await renewed.begun(await renewed.command("lead-2"))
    static = await ClubsWorld.connected(
        database, server, grant="steady", rotation=GrantRotation.STATIC, limits=Limits()
    )
    static_out = await static.begun(await static.command())
    lost = await ClubsWorld.connected(database, server, limits=Limits())
    lost_call = await lost.begun(await lost.command())
    await lost.settle_call(lost_call, a_lost_answer())
    stale = await ClubsWorld.connected(database, server, limits=Limits())
    item = (await stale.command()).work
    await stale.sql(
        "UPDATE oncefence.work_items SET state = 'processing', via = 'claim',"
        " lease_owner = gen_random_uuid(), lease_token = gen_random_uuid(),"
        " lease_until = clock_timestamp() + interval '1 hour',"
        " ownership_epoch = ownership_epoch + 1 WHERE org_id = :org AND work_id = :work",
        work=item,
    )
    orgs = ", ".join(f"'{world.org}'" for world in (renewed, static))
    await plant(
        database,
        # As long as the cases may take.
        f"UPDATE work_items SET lease_until = lease_until + interval '1 hour'"
        f" WHERE org_id IN ({orgs}) AND state = 'processing'",
        f"UPDATE token_refreshes SET lease_until = lease_until + interval '1 hour'"
        f" WHERE org_id IN ({orgs}) AND settled_at IS NULL",
    )
    return {
        "renewed_org": renewed.org,
        "renewed_generation": str(renewed.generation),
        "settled_refresh": str(settled.refresh),
        "open_refresh": str(out.refresh),
        "static_org": static.org,
        "static_refresh": str(static_out.refresh),
        "lost_org": lost.org,
        "lost_generation": str(lost.generation),
        "lost_refresh": str(lost_call.refresh),
        "stale_org": stale.org,
        "stale_generation": str(stale.generation),
        "stale_item": str(item),
    }
