"""The Temporal door's client, without a Temporal: what it says, and what it never shows."""

from http import HTTPStatus

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import Client

from oncefence.app.problems import KERNEL_REFUSALS, TITLES
from oncefence.app.temporal_answers import REFUSALS
from oncefence.app.temporal_client import TemporalRuntimeClient
from tests.support.world import scope_of


def test_a_refusal_has_one_code_at_every_door() -> None:
    """A Runtime handles a refusal by its code, and may change its door (C136)."""
    kernel = {kind.__name__: meaning for kind, meaning in KERNEL_REFUSALS.items()}

    assert {name: REFUSALS[name] for name in kernel} == kernel
    assert set(REFUSALS) - set(kernel) == {"HandoffMessageMalformed"}
    assert {code for _, code in REFUSALS.values()} <= set(TITLES)
    assert all(status < HTTPStatus.INTERNAL_SERVER_ERROR for status, _ in REFUSALS.values())


async def test_the_private_key_is_in_no_representation() -> None:
    """A client is logged by whoever uses it (C444)."""
    key = Ed25519PrivateKey.generate()
    client = await Client.connect("127.0.0.1:1", lazy=True)

    shown = repr(TemporalRuntimeClient(client, scope_of("acme"), key, "oncefence"))

    assert shown == "TemporalRuntimeClient('acme', 'oncefence')"
    assert key.private_bytes_raw().hex() not in shown
