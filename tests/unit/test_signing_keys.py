"""Ed25519 keys from files: what is taken, and what is refused with the way to a right one."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from oncefence.app.signing_keys import read_private_key, read_public_key
from oncefence.domain.errors import ConfigurationRefused

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KIND = X25519PrivateKey.from_private_bytes(bytes(range(32)))


def private_pem(key: Ed25519PrivateKey | X25519PrivateKey, password: bytes | None = None) -> bytes:
    lock = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)


def public_pem(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "key.pem"
    path.write_bytes(content)
    return path


def test_the_two_halves_of_a_key_are_read(tmp_path: Path) -> None:
    """What openssl writes is what is taken, and the halves belong together."""
    public = read_public_key(file_of(tmp_path, public_pem(KEY)))
    private = read_private_key(file_of(tmp_path, private_pem(KEY)))

    assert public == private.public_key().public_bytes_raw() == KEY.public_key().public_bytes_raw()


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path) -> None:
    """It would leave its Runtime, and whoever reads the message must not see it (C444)."""
    content = private_pem(KEY)

    with pytest.raises(ConfigurationRefused, match="must not leave its Runtime") as caught:
        read_public_key(file_of(tmp_path, content))

    assert content.splitlines()[1].decode() not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no key", bytes(32), public_pem(OTHER_KIND)])
def test_what_is_no_public_key_is_refused(tmp_path: Path, content: bytes) -> None:
    """One message says what the file must be and how to make one (C12)."""
    with pytest.raises(ConfigurationRefused, match="openssl genpkey -algorithm ed25519"):
        read_public_key(file_of(tmp_path, content))


@pytest.mark.parametrize(
    "content", [b"", public_pem(KEY), private_pem(OTHER_KIND), private_pem(KEY, b"password")]
)
def test_what_is_no_open_private_key_is_refused(tmp_path: Path, content: bytes) -> None:
    """Likewise; one with a password is for whoever can be asked for it."""
    with pytest.raises(ConfigurationRefused, match="without a password"):
        read_private_key(file_of(tmp_path, content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The usual mistake is in the name (C12)."""
    for read in (read_public_key, read_private_key):
        with pytest.raises(ConfigurationRefused, match=r"absent\.pem cannot be read"):
            read(tmp_path / "absent.pem")
