"""
A process of the reference Runtime that hands over what waits in its outbox, and ends.

Standard input says where: a JSON object of `database_url`, `way` and the members of `Address`.
"""

import asyncio
import json
import sys

from tests.runtime.crm import Crm
from tests.runtime.doors import Address, Way, open_way


async def main() -> None:
    told = json.load(sys.stdin)
    crm, way = Crm(told.pop("database_url")), Way(told.pop("way"))
    async with open_way(way, Address(**told)) as door:
        await crm.hand_over(door)


if __name__ == "__main__":
    asyncio.run(main())
