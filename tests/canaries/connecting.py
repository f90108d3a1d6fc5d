"""Accounts that a browser connects, and renewals of their tokens that go well and amiss."""

from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

from oncefence.domain.ids import OrgId
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.publish_view import publish_view
from tests.canaries.nest import NOTE, Nest
from tests.support.oauth_server import APP, Fault
from tests.support.world import INSTALLATION

CLUBS = "clubs-main"
RENEWALS: tuple[tuple[Fault, ...], ...] = (
    (),
    (Fault.TOO_MANY, Fault.ERROR),
    (Fault.LOST,),
    (Fault.NOT_JSON,),
    (Fault.CUT,),
)


async def connected_accounts(nest: Nest) -> None:
    """Accounts that are connected by a browser, and renewals that succeed, fail and are lost."""
    for number, faults in enumerate(RENEWALS):
        await _renewed(nest, OrgId(f"clubs-{number}"), f"club-{number}", faults)
    await _installation(nest)
    for family in nest.provider.families:
        for token in family.access:
            nest.watch("access token", token)
        if family.refresh is not None:
            nest.watch("refresh token", family.refresh)
    for spent in nest.provider.spent:
        kind = "refresh token" if spent.startswith("refresh-") else "authorisation code"
        nest.watch(kind, spent)
    shown = await nest.document("binding", "show", CLUBS, "--org", "clubs-0")
    disconnected = await nest.verb(
        *("binding", "disconnect", CLUBS, "--org", "clubs-0", *NOTE),
        *("--expected-version", shown["binding"]["version"]),
    )
    assert disconnected.code == 0, disconnected.err


async def _renewed(nest: Nest, org: OrgId, account: str, faults: Sequence[Fault]) -> None:
    """One account, whose token is renewed under these faults of the token endpoint."""
    provider, client = nest.provider, f"client-of-{org}"
    credential = await nest.register(org)
    provider.clients[client] = nest.plant("client secret")
    secret = nest.secret_file(f"{org}.client", provider.clients[client])
    added = await nest.verb(
        *("app", "add", "--org", org, "--provider", "clubs", "--grant", "app"),
        *("--client-id", client, "--secret-file", secret, *NOTE),
    )
    assert added.code == 0, added.err
    await _connect(nest, org, account)
    view = provider.as_provider().dialect.view()
    await publish_view(nest.engine, org, INSTALLATION, view, actor="tests")
    await adopt_link(
        nest.engine,
        org,
        binding_name=CLUBS,
        local_object="contact",
        subject="contact:1",
        remote_object="member",
        remote_id=provider.add_member(),
        actor="tests",
    )
    change = ("contact.rank.push", "contact:1")
    await nest.hand_over(credential, *change, {"rank": nest.plant("payload value")})
    await nest.settled(org, 1)
    await nest.expire_tokens(org)
    provider.meet(*faults)
    await nest.hand_over(credential, *change, {"rank": nest.plant("payload value")})
    await nest.until(
        f"a renewal of {org} came to its end",
        "SELECT count(*) > 0 FROM oncefence.token_refreshes"
        " WHERE org_id = $1 AND settled_at IS NOT NULL",
        org,
    )
    provider.faults.clear()


async def _connect(nest: Nest, org: str, account: str) -> None:
    """Consent at the provider's page, and the browser's way back; the state is a secret, too."""
    nest.provider.consents_as = account
    begun = await nest.secretive_answer(
        "/v1/operator/bindings/connect",
        {
            "org": org,
            "name": CLUBS,
            "provider": "clubs",
            "grant": "app",
            "base_url": nest.provider.base_url,
            "local": True,
            "expected_version": "absent",
            "note": "for the campaign",
        },
    )
    back = urlsplit(await nest.provider.consent(begun["url"]))
    nest.watch("state", parse_qs(back.query)["state"][0])
    # And once more, as a reload of the page does.
    for status in (200, 400):
        page = await nest.answer("GET", back.path, token=None, params=back.query)
        assert page.status_code == status, page.text


async def _installation(nest: Nest) -> None:
    """An installation whose tokens are minted with our app's own key."""
    org = "clubs-install"
    await nest.register(org)
    key = nest.secret_file("app.pem", nest.provider.key_pem())
    added = await nest.verb(
        *("app", "add", "--org", org, "--provider", "clubs", "--grant", "install"),
        *("--client-id", APP, "--secret-file", key, *NOTE),
    )
    assert added.code == 0, added.err
    connected = await nest.verb(
        *("binding", "connect", CLUBS, "--org", org, "--provider", "clubs"),
        *("--grant", "install", "--installation", "club-i", *NOTE),
        *("--base-url", nest.provider.base_url, "--local", "--json"),
    )
    assert connected.code == 0, connected.out + connected.err
