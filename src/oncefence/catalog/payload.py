"""What a Runtime hands over: a strict JSON object, taken exactly or not at all."""

from hashlib import sha256

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.strict_json import JsonRefused, parse
from oncefence.domain.ids import PayloadDigest

PAYLOAD_BYTES_MAX = 262_144
DEPTH_MAX = 64


def payload_digest(data: bytes) -> PayloadDigest:
    """The digest of the exact bytes, lower-case hex SHA-256 (C135)."""
    return PayloadDigest(sha256(data).hexdigest())


def parse_payload(data: bytes, limit_bytes: int = PAYLOAD_BYTES_MAX) -> dict[str, object]:
    """
    The members of a payload; `data` itself is never altered (C155).

    Raises:
        PayloadRefused: It is too long or too deep, no UTF-8 JSON object, or holds a repeated
            key, NaN, an infinity, a number beyond 2^53, U+0000 or a lone surrogate.
    """
    if len(data) > limit_bytes:
        raise PayloadRefused("$", f"has {len(data)} bytes; at most {limit_bytes} are taken")
    try:
        value = parse(data, depth_max=DEPTH_MAX, exact=True)
    except JsonRefused as error:
        raise PayloadRefused(error.where, error.reason) from None
    if not isinstance(value, dict):
        raise PayloadRefused("$", "must be a JSON object")
    return value
