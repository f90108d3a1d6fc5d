"""Rows of what connecting accounts writes, by the names under which the cases know them."""

from dataclasses import replace

from oncefence.domain.authorization import Flow, RequestAct, RequestOutcome
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.add_provider_app import add_provider_app
from oncefence.storage.phases.begin_authorization import WantedConnection, begin_authorization
from oncefence.storage.phases.begin_revocation import BegunRevocation, begin_revocation
from oncefence.storage.phases.disconnect_binding import disconnect_binding
from oncefence.storage.phases.settle_authorization import NotAuthorized, settle_authorization
from oncefence.storage.phases.take_authorization import take_authorization
from tests.support.world import TOKEN, World

BY = {"actor": "tests", "note": "for a test"}


async def connection_facts(world: World) -> dict[str, str]:
    """An org with an app, a request in each state, and an account that is disconnected."""
    added = await add_provider_app(
        world.engine,
        world.ring,
        world.org,
        provider="somebody",
        pack_grant="app",
        flow=Flow.OAUTH2,
        client_id="client",
        secret=Secret("secret"),
        **BY,
    )
    wanted = WantedConnection(
        act=RequestAct.CONNECT,
        flow=Flow.OAUTH2,
        org=world.org,
        name="wanted",
        subject=None,
        provider="somebody",
        base_url="http://127.0.0.1:1",
        is_local=True,
        pack_grant="app",
        grant_content={},
        installation=None,
        redirect_uri="http://127.0.0.1:1/back",
    )
    requests = {}
    for name in ("request", "used", "settled"):
        begun = await begin_authorization(
            world.engine,
            world.ring,
            replace(wanted, name=f"wanted-{name}"),
            expected_version="absent",
            **BY,
        )
        requests[name] = str(begun.request)
        if name == "request":
            continue
        taken = await take_authorization(world.engine, world.ring, begun.state.reveal())
        assert taken is not None, "it was begun just now"
        if name == "settled":
            end = NotAuthorized(outcome=RequestOutcome.DENIED, failure_class="access_denied")
            await settle_authorization(world.engine, world.ring, world.org, begun.request, end)
    for name in ("ended", "ended-too"):
        await add_principal_binding(
            world.engine,
            world.ring,
            world.org,
            name=name,
            provider="somebody",
            base_url="http://127.0.0.1:1",
            is_local=True,
            token=Secret(TOKEN),
            actor="tests",
        )
    revocations = {}
    for name in ("ended", "ended-too"):
        ended = await disconnect_binding(
            world.engine,
            world.org,
            name,
            subject=None,
            keeps_key=True,
            expected_version="1.current",
            **BY,
        )
        begun_revocation = await begin_revocation(
            world.engine, world.ring, world.org, ended.binding, ended.generation, **BY
        )
        assert isinstance(begun_revocation, BegunRevocation)
        revocations[name] = begun_revocation
    await world.sql(
        "UPDATE oncefence.revocations SET settled_at = clock_timestamp(), outcome = 'revoked'"
        " WHERE org_id = :org AND revocation_id = :revocation",
        revocation=revocations["ended-too"].revocation,
    )
    return {
        "connections_org": world.org,
        "app": str(added.app),
        **requests,
        "connected_binding": str(world.binding),
        "ended_generation": str(revocations["ended"].generation),
        "revocation": str(revocations["ended"].revocation),
        "settled_revocation": str(revocations["ended-too"].revocation),
    }
