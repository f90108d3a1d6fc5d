"""The sealed form of a frozen request, written and read in one place."""

import base64
import json

from oncefence.catalog.freeze import FrozenRequest
from oncefence.storage.sealing import DataKey


def seal_request(key: DataKey, request: FrozenRequest, *place: object) -> bytes:
    """`request` sealed under an execution's key."""
    content = {
        "method": request.method,
        "target": request.target,
        "headers": [list(pair) for pair in request.headers],
        "body": base64.b64encode(request.body).decode(),
        "written": request.written,
        "idempotency_key": request.idempotency_key,
    }
    return key.seal(json.dumps(content).encode(), *place)


def open_request(key: DataKey, sealed: bytes, *place: object) -> FrozenRequest:
    """The very request that was sealed in this place."""
    content = json.loads(key.open(sealed, *place))
    return FrozenRequest(
        method=content["method"],
        target=content["target"],
        headers=tuple((name, value) for name, value in content["headers"]),
        body=base64.b64decode(content["body"]),
        written=content["written"],
        # Of a command of the version before, which knew none.
        idempotency_key=content.get("idempotency_key"),
    )
