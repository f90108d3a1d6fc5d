"""Reading the first message of a TLS client from its raw bytes, without a TLS library."""

import struct
from dataclasses import dataclass

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ALPN = 0, 16


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What a client offered before anything was agreed on."""

    server_name: str | None
    protocols: tuple[str, ...]
    """By the extension for application protocols, in the order of preference."""


def length_of_hello(data: bytes) -> int | None:
    """The bytes of the record that the message comes in, once its header is there."""
    return None if len(data) < 5 else 5 + struct.unpack("!H", data[3:5])[0]


def read_client_hello(data: bytes) -> ClientHello:
    """Read a message that came in one record, as those of all clients here do."""
    assert (data[0], data[5]) == (_HANDSHAKE, _CLIENT_HELLO), "the client begins by its hello"
    rest = _Bytes(data[9:])
    rest.take(2 + 32)  # the version of old, and the random
    rest.vector(1)  # the session
    rest.vector(2)  # the ciphers
    rest.vector(1)  # the compressions
    extensions = _Bytes(rest.vector(2))
    found: dict[int, bytes] = {}
    while extensions.left:
        (kind,) = struct.unpack("!H", extensions.take(2))
        found[kind] = extensions.vector(2)
    protocols = []
    if _ALPN in found:
        listed = _Bytes(_Bytes(found[_ALPN]).vector(2))
        while listed.left:
            protocols.append(listed.vector(1).decode("ascii"))
    name = found.get(_SERVER_NAME)
    return ClientHello(
        server_name=None if name is None else name[5:].decode("ascii"),
        protocols=tuple(protocols),
    )


class _Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, length: int) -> bytes:
        taken, self.left = self.left[:length], self.left[length:]
        assert len(taken) == length, "the message ends within a field"
        return taken

    def vector(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes), "big"))
