"""
Sole writer of `provider_apps`: what we are to a provider, and the secret that proves it.

An org's own app comes before the one that every org may use (of org `*`). A secret is exchanged
by another row of the same client; tokens are renewed as the client that they were got as.
"""

from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG
from oncefence.domain.redaction import Secret
from oncefence.storage.sealing import KeyRing
from oncefence.storage.tables import provider_apps
from oncefence.storage.wrapped_keys import WrappedKeys, under_other_keys

_FIELD: Final = "app_secret"
_KEY: Final = "provider_app"

_LIVE = (
    provider_apps.c.provider == bindparam("of_provider"),
    provider_apps.c.pack_grant == bindparam("of_grant"),
    provider_apps.c.retired_at.is_(None),
)
ADD = insert(provider_apps)
RETIRE = (
    update(provider_apps)
    .where(
        provider_apps.c.org_id == bindparam("of_org"),
        *_LIVE,
        provider_apps.c.client_id == bindparam("of_client"),
    )
    .values(retired_at=func.clock_timestamp())
    .returning(provider_apps.c.app_id)
)
FIND = (
    select(provider_apps)
    .where(
        provider_apps.c.org_id.in_([bindparam("of_org"), EVERY_ORG]),
        *_LIVE,
        bindparam("of_client", type_=provider_apps.c.client_id.type).is_(None)
        | (provider_apps.c.client_id == bindparam("of_client")),
    )
    # False comes before true: an org's own app is the first.
    .order_by((provider_apps.c.org_id == EVERY_ORG), provider_apps.c.made_at.desc())
    .limit(1)
)
UNDER_OTHER_KEYS = under_other_keys(provider_apps, provider_apps.c.org_id, provider_apps.c.app_id)
REWRAP = (
    update(provider_apps)
    .where(
        provider_apps.c.org_id == bindparam("of_org_id"),
        provider_apps.c.app_id == bindparam("of_app_id"),
    )
    .values(wrapped_key=bindparam("wrapped_key"), key_id=bindparam("key_id"))
)

WRAPPED: Final = WrappedKeys(
    table="provider_apps",
    identity=("org_id", "app_id"),
    held=UNDER_OTHER_KEYS,
    rewrap=REWRAP,
    place=lambda row: (_KEY, row.org_id, row.app_id),
)


async def find(
    connection: AsyncConnection,
    org: OrgId,
    *,
    provider: str,
    pack_grant: str,
    client_id: str | None = None,
) -> Row[Any] | None:
    """The app that `org` is to the provider: the newest, or the one of `client_id`."""
    found = await connection.execute(
        FIND,
        {
            "of_org": org,
            "of_provider": provider,
            "of_grant": pack_grant,
            "of_client": client_id,
        },
    )
    return found.one_or_none()


async def add(connection: AsyncConnection, values: dict[str, Any]) -> None:
    """Add one app."""
    await connection.execute(ADD, values)


async def retire(
    connection: AsyncConnection, org: OrgId, *, provider: str, pack_grant: str, client_id: str
) -> UUID | None:
    """End the live row of this client, where there is one; its id."""
    ended = await connection.execute(
        RETIRE,
        {
            "of_org": org,
            "of_provider": provider,
            "of_grant": pack_grant,
            "of_client": client_id,
        },
    )
    row = ended.one_or_none()
    return None if row is None else row.app_id


def sealed(ring: KeyRing, org: OrgId, app: UUID, secret: Secret) -> dict[str, Any]:
    """The columns that hold the secret of a new app, under a data key of its own."""
    key, wrapped, key_id = ring.new_key(_KEY, org, app)
    return {
        "ciphertext": key.seal(secret.reveal().encode(), _FIELD, org, app),
        "wrapped_key": wrapped,
        "key_id": key_id,
    }


def open_secret(ring: KeyRing, row: Row[Any]) -> Secret:
    """
    The client secret or RSA key (PEM) of a row that `find` found.

    Raises:
        ConfigurationRefused: The key ring is not the one that it was sealed with.
    """
    key = ring.unwrap(row.wrapped_key, row.key_id, _KEY, row.org_id, row.app_id)
    return Secret(key.open(row.ciphertext, _FIELD, row.org_id, row.app_id).decode())
