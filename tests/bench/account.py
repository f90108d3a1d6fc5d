"""An account with many contacts at the fast provider: what is changed, one contact at a time."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from oncefence.domain.handoff import payload_digest
from oncefence.domain.ids import OrgId, PayloadDigest
from oncefence.domain.redaction import Secret
from oncefence.storage.engine import Store
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.authenticate import Caller, authenticate
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.phases.stage_payload import stage_payload
from oncefence.storage.sealing import KeyRing
from tests.support.dialect import Form, shipped_dialect
from tests.support.world import INSTALLATION, scope_of

# Far more than are ever in flight: no two effects under way are about one contact, so that no
# lane makes anybody wait.
CONTACTS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """A linked subject, its record at the provider, and the payload that is staged for it."""

    subject: str
    remote_id: str
    digest: PayloadDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who hands over, about which contacts, by which operations."""

    caller: Caller
    token: str
    operations: dict[Form, str]
    contacts: Iterator[Contact]


async def make_account(engine: Store, ring: KeyRing, base_url: str) -> Account:
    """Registered, published, bound and linked, with every payload staged."""
    dialect = shipped_dialect()
    view = dialect.view()
    org = OrgId(f"bench-{uuid4().hex[:12]}")
    credential = await register_runtime(engine, ring, scope_of(org), actor="bench")
    caller = await authenticate(engine, ring, credential)
    assert caller is not None, "a registered credential is known"
    await publish_view(engine, org, INSTALLATION, view, actor="bench")
    await add_principal_binding(
        engine,
        ring,
        org,
        name=view.principal,
        provider=view.pack,
        base_url=base_url,
        is_local=True,
        token=Secret(dialect.token),
        actor="bench",
    )
    operation = view.operation(dialect.operation_of(Form.LOCAL))
    contacts = []
    for number in range(CONTACTS):
        payload = json.dumps({operation.fields[0].local: f"Director of region {number}"}).encode()
        contact = Contact(
            subject=f"lead-{number}",
            remote_id=str(100_000 + number),
            digest=payload_digest(payload),
        )
        await stage_payload(engine, ring, caller, contact.digest, payload)
        await adopt_link(
            engine,
            org,
            binding_name=view.principal,
            local_object=operation.local_object,
            subject=contact.subject,
            remote_object=operation.remote_object,
            remote_id=contact.remote_id,
            actor="bench",
        )
        contacts.append(contact)
    return Account(
        caller=caller,
        token=dialect.token,
        operations={form: dialect.operation_of(form) for form in Form},
        contacts=itertools.cycle(contacts),
    )
