"""What goes on the wire: a frozen request, and beside it only what each send has of its own."""

from uuid import UUID

from oncefence.activities.wire_message import WireRequest
from oncefence.catalog.freeze import FrozenRequest
from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.redaction import Secret


def trace(
    view: IntegrationBindingView, *, command: UUID, attempt: UUID, idempotency_key: str | None
) -> dict[str, str]:
    """
    Our own ids, under the names that the pack has for them (C245).

    Not the attempt's where the provider's key covers several of them: their bytes are to be the
    same (C95), and some providers refuse a known key with another request.
    """
    names = view.trace
    ids = {names.command_header: str(command)}
    if idempotency_key is None:
        ids[names.attempt_header] = str(attempt)
    return {name: value for name, value in ids.items() if name is not None}


def wire_request(
    view: IntegrationBindingView,
    request: FrozenRequest,
    base_url: str,
    token: Secret,
    trace: dict[str, str],
) -> WireRequest:
    """The frozen request with the credential of this one send, and our own ids where allowed."""
    header, value = view.auth.header_for(token.reveal())
    return WireRequest(
        base_url=base_url,
        method=request.method,
        target=request.target,
        headers=dict(request.headers) | trace,
        body=request.body or None,
        authorization=Secret(value),
        authorization_header=header,
    )
