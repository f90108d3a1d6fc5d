"""
What mitmdump loads: an addon that kills flows in the hook that KILLS_IN names.

It runs in mitmproxy's own environment, and nothing of it is imported by the tests.
"""

import os

from mitmproxy import http

KILLS_IN = os.environ["KILLS_IN"]


def _kill(flow: http.HTTPFlow, hook: str) -> None:
    # A read is let through, so that a lookup can see what became of the write.
    if hook == KILLS_IN and flow.request.method in {"PATCH", "CONNECT"}:
        flow.kill()


def http_connect(flow: http.HTTPFlow) -> None:
    """Called for CONNECT, before the tunnel is open."""
    _kill(flow, "http_connect")


def request(flow: http.HTTPFlow) -> None:
    """Called with the whole request, before anything of it goes upstream."""
    _kill(flow, "request")


def response(flow: http.HTTPFlow) -> None:
    """Called with the whole answer of the upstream, before anything of it comes back."""
    _kill(flow, "response")
