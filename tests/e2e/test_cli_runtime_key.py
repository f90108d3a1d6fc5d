"""`oncefence runtime register --public-key-file`: the key under which a Runtime signs."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from oncefence.storage.sealing import KeyRing
from tests.support.command_line import run
from tests.support.doors import rows
from tests.support.servers import Database

WORDS = ("runtime", "register", "--org", "acme", "--installation", "crm", "--capability")
STORED = "SELECT capability, public_key FROM oncefence.runtime_work_bindings ORDER BY capability"


async def test_the_public_key_stands_with_the_work_binding(
    database: Database, tmp_path: Path
) -> None:
    """It is the only thing by which a signature is known; without one there is no such door."""
    key = Ed25519PrivateKey.generate().public_key()
    pem, keys = tmp_path / "public.pem", tmp_path / "keys.json"
    pem.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    KeyRing.make_file(keys)
    settings = {"DATABASE_URL": database.app_url, "KEY_FILE": keys}

    signing = await run(*WORDS, "signing", "--public-key-file", pem, settings=settings)
    silent = await run(*WORDS, "silent", settings=settings)
    wrong = await run(*WORDS, "wrong", "--public-key-file", keys, settings=settings)

    assert (signing.code, silent.code, wrong.code) == (0, 0, 1)
    assert signing.out.startswith("ofc1_")
    assert "is no PEM file of an Ed25519 public key" in wrong.message
    assert wrong.out == ""
    assert [tuple(row.values()) for row in await rows(database.admin_url, STORED)] == [
        ("signing", key.public_bytes_raw()),
        ("silent", None),
    ]
