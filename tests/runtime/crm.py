"""
The reference Runtime: a small CRM that pushes the titles of its leads to a provider.

It knows oncefence by the doors alone. Its leads, its outbox and its inbox are in a database of
its own, and each of its verbs is one local transaction, or one call of a door and then one.
"""

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.runtime.doors import Completion, Door, Entry, NoAnswer, Receipt, Refused, Results

TABLES: Final = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")
OPERATION: Final = "lead.title.push"

Row = Mapping[str, Any]
LocalCommand = Callable[[Any, Row, Completion], Awaitable[None]]
"""Applies a completion to the lead of an outbox entry, in the transaction that it is given."""


class ReceiptsDiffer(Exception):
    """One entry was given two receipts: the promise of the other side is broken."""


class ContractUnknown(Exception):
    """This version of the Runtime has no such local command; nothing was taken."""


@dataclass(frozen=True, slots=True)
class Crm:
    """One process of the Runtime; it keeps nothing that is not in its database."""

    database_url: str
    local_commands: "Mapping[tuple[str, int], LocalCommand]" = field(
        default_factory=lambda: LOCAL_COMMANDS
    )

    # --- the product's own work --------------------------------------------------------------

    async def add_lead(self, lead: str, title: str) -> None:
        """A lead that nobody is told of."""
        async with self._transaction() as connection:
            await connection.execute(
                "INSERT INTO crm.leads (lead_id, title) VALUES ($1, $2)", lead, title
            )

    async def retitle(self, lead: str, title: str) -> str:
        """The lead has the title and the outbox has an entry that says so, or neither."""
        outbox_id = uuid.uuid4().hex
        async with self._transaction() as connection:
            version = await connection.fetchval(
                "UPDATE crm.leads SET title = $2, version = version + 1"
                " WHERE lead_id = $1 RETURNING version",
                lead,
                title,
            )
            await connection.execute(
                "INSERT INTO crm.outbox (outbox_id, lead_id, lead_version, operation, payload)"
                " VALUES ($1, $2, $3, $4, $5)",
                outbox_id,
                lead,
                version,
                OPERATION,
                # Written once: each time that it is handed over it is these bytes.
                json.dumps({"title": title}).encode(),
            )
        return outbox_id

    # --- the outbox --------------------------------------------------------------------------

    async def hand_over(self, door: Door) -> list[str]:
        """
        Hand over what holds no receipt, in order; gives the entries that hold one now.

        What goes wrong between the door's answer and our COMMIT costs nothing but the asking
        again: the entry's key is made of its id, so the door finds what it decided.
        """
        received: list[str] = []
        waiting: set[str] = set()
        for row in await self._without_receipt():
            # The doors keep the order in which a subject's entries come to them, so a later one
            # must not overtake.
            if row["lead_id"] in waiting:
                continue
            try:
                receipt = await door.hand_over(_entry_of(row))
            except NoAnswer:
                break
            except Refused as refusal:
                waiting.add(row["lead_id"])
                await self._note_refusal(row["outbox_id"], str(refusal))
            else:
                await self.keep_receipt(row["outbox_id"], receipt)
                received.append(row["outbox_id"])
        return received

    async def withdraw(self, door: Door, *, older_than: timedelta) -> list[str]:
        """
        Ask that entries which waited too long never become commands; gives those that will not.

        An entry that was accepted unnoticed gets the receipt of its command instead.
        """
        withdrawn: list[str] = []
        for row in await self._without_receipt(older_than):
            try:
                receipt = await door.reject(_entry_of(row))
            except NoAnswer:
                break
            await self.keep_receipt(row["outbox_id"], receipt)
            if receipt.execution_id is None:
                withdrawn.append(row["outbox_id"])
        return withdrawn

    async def clear(self) -> list[str]:
        """
        Delete the entries that nobody needs again.

        Rejected: nothing will ever come. Succeeded or cancelled: nothing else will come. After a
        failure an operator may have it tried again, so its entry stays and is asked about.
        """
        async with self._transaction() as connection:
            rows = await connection.fetch(
                "DELETE FROM crm.outbox AS o WHERE o.admission = 'HANDOFF_REJECTED'"
                " OR EXISTS (SELECT FROM crm.inbox AS i WHERE i.outbox_id = o.outbox_id"
                " AND i.status IN ('succeeded', 'cancelled')) RETURNING o.outbox_id"
            )
        return [row["outbox_id"] for row in rows]

    async def _without_receipt(self, older_than: timedelta = timedelta(0)) -> list[Row]:
        async with self._transaction() as connection:
            rows: list[Row] = await connection.fetch(
                "SELECT * FROM crm.outbox WHERE admission IS NULL"
                " AND written_at <= clock_timestamp() - $1::interval ORDER BY sequence",
                older_than,
            )
        return rows

    async def _note_refusal(self, outbox_id: str, code: str) -> None:
        async with self._transaction() as connection:
            await connection.execute(
                "UPDATE crm.outbox SET refused = $2 WHERE outbox_id = $1", outbox_id, code
            )

    async def keep_receipt(self, outbox_id: str, receipt: Receipt) -> None:
        told = (receipt.admission, receipt.command_id, receipt.execution_id)
        async with self._transaction() as connection:
            held = await connection.fetchrow(
                "SELECT admission, command_id, execution_id FROM crm.outbox"
                " WHERE outbox_id = $1 FOR UPDATE",
                outbox_id,
            )
            # Gone: another process has handed it over too, and has seen it to its end.
            if held is None:
                return
            if held["admission"] is None:
                await connection.execute(
                    "UPDATE crm.outbox SET admission = $2, command_id = $3, execution_id = $4,"
                    " refused = NULL WHERE outbox_id = $1",
                    outbox_id,
                    *told,
                )
            elif tuple(held) != told:
                raise ReceiptsDiffer(f"{outbox_id}: {tuple(held)} and {told}")

    # --- the inbox ---------------------------------------------------------------------------

    async def take_results(self, results: Results) -> list[str]:
        """Ask after what was accepted; gives the completions that were taken, each once."""
        async with self._transaction() as connection:
            rows = await connection.fetch(
                "SELECT outbox_id, execution_id FROM crm.outbox"
                " WHERE admission = 'COMMAND_ACCEPTED' ORDER BY sequence"
            )
        taken: list[str] = []
        for row in rows:
            try:
                completion = await results.completion(row["execution_id"])
            except NoAnswer:
                break
            if completion is not None and await self.take(row["outbox_id"], completion):
                taken.append(completion.completion_id)
        return taken

    async def take(self, outbox_id: str, completion: Completion) -> bool:
        """
        Put the completion into the inbox and apply it, in one transaction; False if it was there.

        Raises:
            ContractUnknown: A newer Runtime has to take it.
        """
        async with self._transaction() as connection:
            # Under this lock the settlements of one execution come one after the other.
            entry = await connection.fetchrow(
                "SELECT * FROM crm.outbox WHERE outbox_id = $1 FOR UPDATE", outbox_id
            )
            if entry is None:
                return False
            newest = await connection.fetchval(
                "SELECT max(settlement) FROM crm.inbox WHERE execution_id = $1",
                entry["execution_id"],
            )
            if newest is not None and newest >= completion.settlement:
                return False
            await connection.execute(
                "INSERT INTO crm.inbox (completion_id, outbox_id, execution_id, settlement,"
                " supersedes, status, command, command_version)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                completion.completion_id,
                outbox_id,
                entry["execution_id"],
                completion.settlement,
                completion.supersedes,
                completion.status,
                completion.command,
                completion.version,
            )
            apply = self.local_commands.get((completion.command, completion.version))
            if apply is None:
                raise ContractUnknown(f"{completion.command}, version {completion.version}")
            await apply(connection, entry, completion)
        return True

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.database_url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()


def _entry_of(row: Row) -> Entry:
    return Entry(
        outbox_id=row["outbox_id"],
        operation=row["operation"],
        subject=row["lead_id"],
        payload=row["payload"],
    )


# --- the local commands ------------------------------------------------------------------------


async def _mark(connection: Any, entry: Row, completion: Completion, state: str) -> None:
    is_there = completion.status == "succeeded"
    await connection.execute(
        # A result of an older title must not hide that of a newer one.
        "UPDATE crm.leads SET results_applied = results_applied + 1,"
        " push_state = CASE WHEN pushed_version < $2 THEN $3 ELSE push_state END,"
        " pushed_title = CASE WHEN $5 AND pushed_version < $2 THEN $4 ELSE pushed_title END,"
        " pushed_version = CASE WHEN $5 THEN greatest(pushed_version, $2) ELSE pushed_version END"
        " WHERE lead_id = $1",
        entry["lead_id"],
        entry["lead_version"],
        state if is_there else completion.status,
        json.loads(entry["payload"])["title"],
        is_there,
    )


async def _title_pushed(connection: Any, entry: Row, completion: Completion) -> None:
    await _mark(connection, entry, completion, "pushed")


async def _title_pushed_as(connection: Any, entry: Row, completion: Completion) -> None:
    await _mark(connection, entry, completion, str(completion.data["state"]))


# A version stays for as long as a command may be open whose contract names it.
LOCAL_COMMANDS: Final[dict[tuple[str, int], LocalCommand]] = {
    ("lead.title.pushed", 1): _title_pushed,
    ("lead.title.pushed", 2): _title_pushed_as,
}
