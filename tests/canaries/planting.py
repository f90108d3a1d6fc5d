"""Secrets of the deployment itself, and of writes that meet every fault."""

import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from oncefence.app.simulator_admin import SimulatorAdmin
from oncefence.domain.handoff import payload_digest
from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Secret
from oncefence.storage.key_file import read_keys
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.publish_view import publish_view
from tests.canaries.nest import NOTE, Nest
from tests.support.world import INSTALLATION, PRINCIPAL, UNCOUNTED, example_view

# What becomes of a send: done, refused, limited, cut, lost, garbled, late.
FAULTS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"fault": "reject_400"},
    {"fault": "rate_limit_429", "retry_after": 1},
    {"fault": "cut_body"},
    {"fault": "lost_answer"},
    {"fault": "garbled"},
    {"fault": "server_error_after_commit"},
    {"fault": "reset_before_answer"},
    {"fault": "reset_after_commit"},
    {"fault": "wrong_id"},
    {"fault": "error_inside_200"},
)
SCOPE = ("--installation", "crm", "--capability", "outbox")


async def plant_roles(nest: Nest) -> None:
    for password in nest.stack.passwords:
        nest.watch("database password", password)
    roles = ("viewer", "operator", "repairer", "administrator")
    added = await nest.secretive_verb(
        *("operator", "add", "ann", "--all-orgs", "--in-database", "--json", *NOTE),
        *(word for role in roles for word in ("--role", role)),
    )
    assert added.code == 0, added.err
    nest.operator_token = nest.watch("operator token", added.document["token"])
    for name in ("bob", "eve"):
        added = await nest.secretive_verb(
            *("operator", "add", name, "--role", "viewer", "--all-orgs", "--json", *NOTE)
        )
        assert added.code == 0, added.err
        nest.watch("operator token", added.document["token"])


async def plant_keys(nest: Nest) -> None:
    for key in read_keys(nest.stack.key_file).values():
        nest.watch_bytes("wrapping key", key)
    nest.watch("token of the simulator", nest.stack.simulator.token_file.read_text().strip())
    for line in nest.provider.key_pem().splitlines()[1:-1:8]:
        nest.watch("line of the app's key", line)


async def _register_by_hand(nest: Nest, org: str) -> str:
    """A Runtime that signs; the first try is with the private half, and must not be taken."""
    words = ["runtime", "register", "--org", org, *SCOPE, "--json"]
    key = Ed25519PrivateKey.generate()
    nest.watch_bytes(
        "signing key", key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    private = nest.secret_file("signing.pem", pem)
    refused = await nest.verb(*words, "--public-key-file", private)
    assert refused.code == 1
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public_file = nest.secret_file("public.pem", public.decode())
    registered = await nest.secretive_verb(*words, "--public-key-file", public_file)
    assert registered.code == 0, registered.err
    return nest.watch("credential", registered.document["credential"])


async def _account_by_hand(nest: Nest, org: str, token: str) -> None:
    """An account at the simulated provider, with a published binding."""
    path = nest.secret_file(f"{org}.token", token)
    # Once with a second line, as a slip of the hand makes it: refused without a word of it.
    amiss = nest.secret_file(f"{org}.amiss", f"{token}\nand more\n")
    given = ("binding", "add", "--org", org, "--name", PRINCIPAL, "--provider", "hubspot")
    given += ("--base-url", nest.stack.simulator.url, "--local")
    assert (await nest.verb(*given, "--token-file", amiss)).code == 1
    assert (await nest.verb(*given, "--token-file", path)).code == 0
    binding = nest.stack.folder / "given" / "uncounted.binding.toml"
    binding.write_text(UNCOUNTED, encoding="utf-8")
    published = await nest.verb(
        *("catalog", "publish", binding, "--org", org, "--installation", "crm", "--activate")
    )
    assert published.code == 0, published.err


async def _links_by_hand(nest: Nest, org: str, contacts: Mapping[str, str]) -> None:
    lines = [
        {"object": "lead", "subject": subject, "remote_object": "contact", "remote_id": contact}
        for subject, contact in contacts.items()
    ]
    path = nest.secret_file(f"{org}.links", "".join(json.dumps(line) + "\n" for line in lines))
    adopted = await nest.verb(
        *("link", "adopt", "--org", org, "--binding", PRINCIPAL, "--file", path)
    )
    assert adopted.code == 0, adopted.err


async def writes_under_faults(nest: Nest) -> str:
    credential = await _register_by_hand(nest, "acme")
    await _account_by_hand(nest, "acme", nest.stack.simulator.token_file.read_text().strip())
    admin = nest.stack.simulator.admin
    contacts = {f"lead:{number}": await _contact(admin, number) for number in range(len(FAULTS))}
    await _links_by_hand(nest, "acme", contacts)
    for (subject, contact), fault in zip(contacts.items(), FAULTS, strict=True):
        if fault is not None:
            await admin.add_rules([{"contact": contact, "times": 1, **fault}])
        await nest.hand_over(
            credential, "lead.title.push", subject, {"title": nest.plant("payload value")}
        )
    await nest.settled("acme", len(FAULTS))
    # Staged, and never handed over.
    staged = json.dumps({"title": nest.plant("payload value")}).encode()
    await nest.answer(
        "PUT", f"/v1/payloads/{payload_digest(staged)}", token=credential, content=staged
    )
    return credential


async def _contact(admin: SimulatorAdmin, number: int) -> str:
    contact = str(700_100 + number)
    await admin.add_contact(contact, {"jobtitle": "before"})
    return contact


async def refused_tokens(nest: Nest) -> None:
    for number in range(3):
        org = OrgId(f"refused-{number}")
        credential = await nest.register(org)
        await publish_view(nest.engine, org, INSTALLATION, example_view(), actor="tests")
        await add_principal_binding(
            nest.engine,
            nest.ring,
            org,
            name=PRINCIPAL,
            provider="hubspot",
            base_url=nest.stack.simulator.url,
            is_local=True,
            token=Secret(nest.plant("access token")),
            actor="tests",
        )
        await adopt_link(
            nest.engine,
            org,
            binding_name=PRINCIPAL,
            local_object="lead",
            subject="lead:1",
            remote_object="contact",
            remote_id=await _contact(nest.stack.simulator.admin, 100 + number),
            actor="tests",
        )
        await nest.hand_over(
            credential, "lead.title.push", "lead:1", {"title": nest.plant("payload value")}
        )
        await nest.until(
            f"the token of {org} was refused",
            "SELECT count(*) > 0 FROM oncefence.effect_attempts"
            " WHERE org_id = $1 AND settled_at IS NOT NULL AND response_status = 401",
            org,
        )
