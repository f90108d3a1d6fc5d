"""Where a grant's endpoints are: the pack's addresses, or their paths on a local binding's host."""

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An origin, and the path below it."""

    base_url: str
    target: str

    @property
    def url(self) -> str:
        return self.base_url + self.target


def endpoint_of(url: str, *, base_url: str, is_local: bool) -> Endpoint:
    """
    The endpoint at a pack's `url`; of a local binding, the same path where the binding lives.

    A local binding speaks to a stand-in of the provider. What is secret must not go to the real one
    because a pack names it.
    """
    parts = urlsplit(url)
    if is_local:
        return Endpoint(base_url=base_url, target=parts.path)
    return Endpoint(base_url=f"{parts.scheme}://{parts.netloc}", target=parts.path)
