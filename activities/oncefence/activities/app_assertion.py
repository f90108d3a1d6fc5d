"""The signed statement by which an app says who it is: a JSON Web Token under RS256 (RFC 7515)."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from oncefence.catalog.grants import APP, INSTALLATION, Assertion
from oncefence.catalog.templates import expand
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.redaction import Secret

# A provider whose clock is behind ours would hold a statement of this moment for one of the future.
_BACKDATED_SECONDS_MAX: Final = 30
_RSA_BITS_MIN: Final = 2048


def signed_assertion(
    assertion: Assertion, key: Secret, *, app: str, installation: str, at: datetime
) -> Secret:
    """
    The statement of `app` about one of its installations, good from a little before `at`.

    Raises:
        ConfigurationRefused: `key` is no RSA key in PEM, without a passphrase.
    """
    values = {APP: app, INSTALLATION: installation}
    backdated = min(_BACKDATED_SECONDS_MAX, assertion.lifetime_s // 10)
    issued = int(at.timestamp()) - backdated
    claims: dict[str, object] = {
        "iss": expand(assertion.issuer, values, str),
        "iat": issued,
        "exp": issued + assertion.lifetime_s,
    }
    claims |= {name: expand(text, values, str) for name, text in assertion.claims.items()}
    signed = f"{_part({'alg': assertion.algorithm, 'typ': 'JWT'})}.{_part(claims)}"
    signature = app_key(key).sign(signed.encode("ascii"), padding.PKCS1v15(), hashes.SHA256())
    return Secret(f"{signed}.{_base64(signature)}")


def app_key(key: Secret) -> RSAPrivateKey:
    """
    The RSA key in a PEM text.

    Raises:
        ConfigurationRefused: It is none, or it needs a passphrase, or it is too short to sign with.
    """
    try:
        found = load_pem_private_key(key.reveal().encode(), password=None)
    except (ValueError, TypeError):
        found = None
    if not isinstance(found, RSAPrivateKey) or found.key_size < _RSA_BITS_MIN:
        raise ConfigurationRefused(
            setting="the app's key",
            reason=f"this is no RSA key of {_RSA_BITS_MIN} bits in PEM, or it has a passphrase",
            remedy="Make one with `openssl genrsa 2048`, give its public half to the provider, and "
            "add the app anew",
        )
    return found


def _part(content: Mapping[str, object]) -> str:
    return _base64(json.dumps(content, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
