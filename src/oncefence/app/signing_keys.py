"""Ed25519 keys as files: the public half is registered, the private half stays with its Runtime."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from oncefence.domain.errors import ConfigurationRefused

_FILE_BYTES_MAX = 16_384


def read_public_key(path: Path) -> bytes:
    """
    The raw 32 bytes of the public key in a PEM file.

    Raises:
        ConfigurationRefused: There is no such file, or none of such a key.
    """
    content = _read(path, "--public-key-file")
    if b"PRIVATE KEY" in content:
        raise ConfigurationRefused(
            setting="--public-key-file",
            reason=f"{path} holds a private key, which must not leave its Runtime",
            remedy="Give the public half: openssl pkey -in PRIVATE.pem -pubout",
        )
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationRefused(
            setting="--public-key-file",
            reason=f"{path} is no PEM file of an Ed25519 public key",
            remedy="Make one: openssl genpkey -algorithm ed25519 -out PRIVATE.pem, "
            "then openssl pkey -in PRIVATE.pem -pubout",
        )
    return key.public_bytes_raw()


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """
    The private key in a PEM file that is not encrypted.

    Raises:
        ConfigurationRefused: There is no such file, or none of such a key.
    """
    try:
        key = load_pem_private_key(_read(path, "private key"), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationRefused(
            setting="private key",
            reason=f"{path} is no PEM file of an Ed25519 private key without a password",
            remedy="Make one: openssl genpkey -algorithm ed25519 -out PRIVATE.pem",
        )
    return key


def _read(path: Path, setting: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise ConfigurationRefused(
            setting=setting,
            reason=f"{path} cannot be read ({error.strerror})",
            remedy="Give the name of a PEM file",
        ) from None
