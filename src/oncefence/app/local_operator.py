"""
The operator of a stack: everything allowed, on a database for development and nowhere else.

Its token is kept in the folder, as the credential of the stack's Runtime is.
"""

import json
from pathlib import Path
from typing import Final

from oncefence.app.stack_state import write_privately
from oncefence.domain.operator import EVERY_ORG, Role
from oncefence.domain.redaction import Secret
from oncefence.storage.engine import Store, make_engine
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.authenticate_operator import authenticate_operator
from oncefence.storage.phases.examine_store import read_facts
from oncefence.storage.phases.list_operators import list_operators
from oncefence.storage.phases.revoke_operator import revoke_operator

ACTOR: Final = "oncefence up"
_NOTE: Final = "made for this folder of oncefence up"


async def local_operator(folder: Path, database_url: str, name: str) -> Secret | None:
    """
    The token of this folder's operator, made where there is none that opens anything.

    None where the database is not marked for development: nobody is given all rights there
    without having been asked for.
    """
    kept = folder / "operator.json"
    engine = make_engine(database_url, size=1)
    try:
        if not (await read_facts(engine)).is_development:
            return None
        token = _kept_token(kept)
        if token is None or await authenticate_operator(engine, token) is None:
            token = await _make(engine, name)
            write_privately(kept, json.dumps({"token": token.reveal()}) + "\n")
        return token
    finally:
        await engine.dispose()


def _kept_token(path: Path) -> Secret | None:
    try:
        return Secret(str(json.loads(path.read_text(encoding="utf-8"))["token"]))
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        # None yet, or of no use: another is made, and the operator of the lost one revoked.
        return None


async def _make(engine: Store, name: str) -> Secret:
    for each in await list_operators(engine):
        if each.name == name:
            await revoke_operator(
                engine,
                name=name,
                expected_version=str(each.operator),
                actor=ACTOR,
                note="its token was lost",
            )
    added = await add_operator(
        engine,
        name=name,
        roles=frozenset(Role),
        orgs=frozenset((EVERY_ORG,)),
        actor=ACTOR,
        note=_NOTE,
    )
    return added.token
