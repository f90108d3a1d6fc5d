"""
What a read at the provider is made with: the frozen request and the pinned generation's token.

Parts of the statements of the phases that begin one, and the opening of what they found.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row

from oncefence.catalog.freeze import FrozenRequest
from oncefence.domain.ids import ExecutionId, OrgId
from oncefence.domain.redaction import Secret
from oncefence.storage.driver_connection import AnyRow
from oncefence.storage.frozen import open_request
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import KeyRing

ACCESS: Final = """
           c.binding_id, c.generation_id, coalesce(g.base_url, b.base_url) AS base_url, b.is_local,
           g.state AS generation_state, g.wrapped_key AS token_wrapped_key,
           g.key_id AS token_key_id, g.token_version, t.ciphertext AS token_ciphertext,
           k.wrapped_key, k.key_id, s.ciphertext
"""
# Of a command `c` and its execution's id `x.execution_id`.
ACCESS_OF_COMMAND: Final = """
      JOIN oncefence.principal_bindings AS b
        ON b.org_id = c.org_id AND b.binding_id = c.binding_id
      JOIN oncefence.binding_generations AS g
        ON g.org_id = c.org_id AND g.generation_id = c.generation_id
      LEFT JOIN oncefence.token_versions AS t ON t.org_id = g.org_id
        AND t.generation_id = g.generation_id AND t.version = g.token_version
      JOIN oncefence.execution_keys AS k
        ON k.org_id = c.org_id AND k.execution_id = x.execution_id
      JOIN oncefence.sealed_payloads AS s ON s.org_id = k.org_id
       AND s.execution_id = k.execution_id AND s.kind = 'request' AND s.ordinal = 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsealedLookup:
    """The frozen request, whose written values are compared, and the token to read with."""

    request: FrozenRequest
    token: Secret


def unseal_read(
    ring: KeyRing, org: OrgId, execution: ExecutionId, row: Row[Any]
) -> UnsealedLookup | None:
    """
    The frozen request and the token of the row's pinned generation, where both are there.

    Raises:
        ConfigurationRefused: The key ring is not the one that they were sealed with.
    """
    is_usable = row.generation_state == "current" and row.token_wrapped_key is not None
    if row.wrapped_key is None or not is_usable:
        return None
    key = ring.unwrap(row.wrapped_key, row.key_id, "execution", org, execution)
    return UnsealedLookup(
        request=open_request(key, row.ciphertext, "request", org, execution, 1),
        token=open_token(ring, org, row),
    )


def open_token(ring: KeyRing, org: OrgId, row: AnyRow) -> Secret:
    """The access token of the generation and version that `row` names."""
    key = GenerationKey.opened(
        ring, row.token_wrapped_key, row.token_key_id, org, row.binding_id, row.generation_id
    )
    return key.open(TokenField.ACCESS, row.token_version, row.token_ciphertext)
