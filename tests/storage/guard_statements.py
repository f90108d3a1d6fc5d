"""
Statements that break one rule of the database each, and the words to write them in.

`$name` stands for a value of the tests' world (see `guard_facts`).
"""

import json
from dataclasses import dataclass

from tests.storage.lifecycle_rows import CLAIM, NO_LEASE

CHECK, UNIQUE, FOREIGN_KEY, NO_GRANT = "23514", "23505", "23503", "42501"
ORG = "org_id = '$org'"
LIVE = "lease_until = clock_timestamp() + interval '1 hour'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """
    One broken rule.

    `guard` is the constraint's name, or table and trigger; `code` is what the owner is told and,
    where `app_code` does not say otherwise, the application role. `behind` names the triggers
    that refuse the same earlier: the owner switches them off to reach the rule behind them.
    """

    guard: str
    what: str
    code: str
    sql: tuple[str, ...]
    app_code: str | None = None
    behind: tuple[str, ...] = ()
    at_commit: bool = False
    says: str = ""

    @property
    def name(self) -> str:
        return f"{self.guard}-{self.code}-{self.what}".replace(" ", "_")


def item(name: str) -> str:
    """The row of a work item."""
    return f"WHERE {ORG} AND work_id = '${name}'"


def attempt(name: str) -> str:
    """The row of an attempt."""
    return f"WHERE {ORG} AND attempt_id = '${name}'"


def execution(name: str) -> str:
    """The row of an execution."""
    return f"WHERE {ORG} AND execution_id = '${name}'"


def copy(table: str, where: str, **changes: object) -> str:
    """A second row like the one at `where`, but for the changes."""
    return (
        f"INSERT INTO oncefence.{table} SELECT (jsonb_populate_record(t, '{json.dumps(changes)}'))"
        f".* FROM oncefence.{table} AS t {where} LIMIT 1"
    )


def change(table: str, what: str, where: str) -> str:
    """An update of the row at `where`."""
    return f"UPDATE oncefence.{table} SET {what} {where}"


def claim(name: str, also: str = CLAIM, trigger: str = "claim") -> str:
    """The claim of an item, with the lease columns of `also`."""
    return change("work_items", f"state = 'processing', via = '{trigger}', {also}", item(name))


def leave(name: str, state: str, trigger: str, also: str = NO_LEASE) -> str:
    """The move of an item to `state`."""
    return change("work_items", f"state = '{state}', via = '{trigger}', {also}", item(name))


def expire(name: str) -> str:
    """The end of an item's lease."""
    return change("work_items", "lease_until = clock_timestamp() - interval '1 s'", item(name))


def open_attempt(work: str, ordinal: int = 1, **changes: str) -> str:
    """An attempt of a claimed item, with the columns of `changes` as expressions."""
    columns = {
        "org_id": "w.org_id",
        "attempt_id": "gen_random_uuid()",
        "command_id": "w.command_id",
        "execution_id": "w.execution_id",
        "work_id": "w.work_id",
        "ordinal": str(ordinal),
        "source_lane": "w.source_lane",
        "target_lane": "w.target_lane",
        "method": "c.request_method",
        "relative_target": "c.request_target",
        "safe_headers": "c.request_headers",
        "body_address": "c.request_body_address",
        "idempotency_key": "c.idempotency_key",
        "lease_token": "w.lease_token",
        "ownership_epoch": "w.ownership_epoch",
        "lease_owner": "w.lease_owner",
        "generation_id": "c.generation_id",
        "token_version": "1",
        "link_id": "c.link_id",
        "link_version": "c.link_version",
        "validation": "'{}'",
        "quota": "'[]'",
        "prepared_at": "clock_timestamp()",
        "started_at": "clock_timestamp()",
        "started_as_of": "clock_timestamp()",
        "deadline_ms": "w.deadline_ms",
        **changes,
    }
    return (
        f"INSERT INTO oncefence.effect_attempts ({', '.join(columns)})"
        f" SELECT {', '.join(columns.values())} FROM oncefence.work_items AS w"
        " JOIN oncefence.commands AS c USING (org_id, command_id)"
        f" WHERE w.org_id = '$org' AND w.work_id = '${work}'"
    )


def settle(name: str, outcome: str = "'REJECTED'", in_doubt: str = "false", **changes: str) -> str:
    """The settlement of an attempt by the claim that started it, but for the changes."""
    columns = {
        "settled_at": "clock_timestamp()",
        "settled_as": "'starter'",
        "settled_token": "lease_token",
        "settled_epoch": "ownership_epoch",
        "outcome": outcome,
        "may_have_applied": in_doubt,
        **changes,
    }
    what = ", ".join(f"{column} = {value}" for column, value in columns.items())
    return change("effect_attempts", what, attempt(name))


def settle_all(work: str, outcome: str = "'REJECTED'", in_doubt: str = "false") -> str:
    """The settlement of what is open under an item."""
    return settle("", outcome, in_doubt).split(" WHERE")[0] + " " + item(work)


def look_at(work: str) -> str:
    """A lookup item beside an item."""
    nowhere = dict.fromkeys(
        ("source_lane", "source_sequence", "target_lane", "target_sequence"), None
    )
    return copy("work_items", item(work), work_id="$new", family="effect.lookup", **nowhere)


def look_again(work: str) -> tuple[str, str]:
    """A claimed lookup item of the command of `work`: a second claim on one command."""
    add = (
        "INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id,"
        " command_id, execution_id, installation, view_id, view_digest, view_revision, definition,"
        " queue_class, deadline_ms, state, via, run_after) SELECT org_id, '$new', 'made.up',"
        " 'execution', 'x', command_id, execution_id, installation, view_id, view_digest,"
        " view_revision, definition, queue_class, deadline_ms, 'pending', 'create',"
        f" clock_timestamp() FROM oncefence.work_items {item(work)}"
    )
    return add, claim("new")


def check(guard: str, *sql: str, what: str = "", **more: object) -> Case:
    return Case(guard=guard, what=what, code=CHECK, sql=sql, **more)  # type: ignore[arg-type]


def unique(guard: str, *sql: str, what: str = "") -> Case:
    return Case(guard=guard, what=what, code=UNIQUE, sql=sql)


def said(guard: str, code: str, what: str, *sql: str, **more: object) -> Case:
    return Case(guard=guard, code=code, what=what, sql=sql, **more)  # type: ignore[arg-type]


def move(name: str, status: str, trigger: str, also: str = "") -> str:
    """The move of an execution with the columns of `also`, which begins with a comma."""
    return change("executions", f"status = '{status}', via = '{trigger}'{also}", execution(name))


def not_found(name: str) -> str:
    """A lookup that found nothing of the attempt `name`."""
    return copy(
        "lookups",
        f"WHERE {ORG}",
        lookup_id="$new",
        execution_id=f"${name}_execution",
        attempt_id=f"${name}",
        verdict="not_found",
        **{"try": None},
    )


PREPARED = {"started_at": "NULL", "started_as_of": "NULL"}
"""The columns of an attempt that is not marked yet."""
