"""
Fifty secrets and more through a small real deployment, and then a search for them everywhere.

They come in by every way there is (files, doors, a browser, providers' replies), meet faults,
refusals, renewals, lookups and a rotation of keys, and are looked for in all that is left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.canaries import places
from tests.canaries.asking import doors_asked_amiss, exchange_keys, screens
from tests.canaries.connecting import connected_accounts
from tests.canaries.nest import Nest, NestStack
from tests.canaries.planting import (
    FAULTS,
    plant_keys,
    plant_roles,
    refused_tokens,
    writes_under_faults,
)
from tests.support.oauth_server import oauth_server

TIME_SCALE = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was planted, where it was looked for, and where it was found."""

    planted: dict[str, int]
    read: dict[str, int]
    """Bytes by place."""

    found: list[tuple[str, str]]
    provider_knows: int
    """Of how many secrets the providers' own records tell: those went all the way."""

    def as_json(self) -> dict[str, Any]:
        """The figures for machines."""
        return {
            "planted": sum(self.planted.values()),
            "planted_by_kind": self.planted,
            "places": len(self.read),
            "bytes_read": sum(self.read.values()),
            "provider_knows": self.provider_knows,
            "found": [{"place": place, "secret": name} for place, name in self.found],
        }


async def run_campaign(folder: Path, say: Callable[[str], None]) -> Report:
    """
    One campaign, its deployment in `folder`.

    Raises:
        ConfigurationRefused: A server does not start.
    """
    with oauth_server() as provider:
        with NestStack(folder, time_scale=TIME_SCALE, say=say) as stack:
            stack.launch_worker()
            stack.await_worker()
            nest = Nest.on(stack, provider)
            say("planting")
            await plant_roles(nest)
            await plant_keys(nest)
            credential = await writes_under_faults(nest)
            await refused_tokens(nest)
            say("connecting and renewing")
            await connected_accounts(nest)
            say("exchanging the keys, and asking the doors amiss")
            await exchange_keys(nest, credential, accepted=len(FAULTS))
            await doors_asked_amiss(nest, credential)
            await screens(nest)
            say("searching what is left")
            search = nest.search()
            async for place, content in places.of_temporal(nest):
                search.look(place, content)
            async for place, content in places.of_tables(nest):
                search.look(place, content)
            for place, text in nest.said:
                search.look(place, text)
            await nest.engine.dispose()
        for place, content in places.of_files(folder):
            search.look(place, content)
        return Report(
            planted=nest.counts(),
            read=search.bytes_read,
            found=sorted(set(search.found)),
            provider_knows=_known_to_providers(nest, folder),
        )


def _known_to_providers(nest: Nest, folder: Path) -> int:
    ledger = (folder / "simulator" / "ledger.jsonl").read_text(encoding="utf-8")
    bodies = b"\n".join(call.body for call in nest.provider.calls).decode(errors="replace")
    shown = "\n".join(call.authorization or "" for call in nest.provider.calls)
    everything = f"{ledger}\n{bodies}\n{shown}"
    return sum(isinstance(each, str) and each in everything for _, each in nest.secrets)
