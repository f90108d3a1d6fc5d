"""Clients of servers that are on this machine and speak no TLS."""

import ssl
from typing import Final

NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody: to read whom the world trusts takes each new client 40 ms, for nothing here."""
