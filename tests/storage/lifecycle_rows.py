"""
Rows that stand legally in each state of both lifecycles, and how to move them by hand.

A state is reached by permitted moves alone, with everything that has to go with them at COMMIT;
where no phase makes a move yet, the application role makes it in plain SQL.
"""

import itertools
from dataclasses import dataclass

from oncefence.domain.effect import Outcome
from oncefence.domain.ids import WorkId
from oncefence.domain.work_item import WORK_ITEM
from tests.support.world import Accepted, World

_leads = itertools.count(1)

ITEM = "WHERE org_id = :org AND work_id = :work"
CLAIM = (
    "lease_owner = gen_random_uuid(), lease_token = gen_random_uuid(),"
    " lease_until = clock_timestamp() + interval '1 hour', ownership_epoch = ownership_epoch + 1"
)
NO_LEASE = "lease_owner = NULL, lease_token = NULL, lease_until = NULL"
FENCE = "rollback_fence_id = coalesce(rollback_fence_id, gen_random_uuid())"
ALSO = {
    "processing": CLAIM,
    "dead": f"{NO_LEASE}, failure_class = 'by_hand'",
    "awaiting_legacy_outcome": f"{NO_LEASE}, {FENCE}",
    "legacy_outcome_unknown": f"{NO_LEASE}, {FENCE}",
    "reconciled_legacy_terminal": (
        f"{NO_LEASE}, {FENCE}, legacy_receipt_version = 1, legacy_receipt_digest = 'ab'"
    ),
}
"""The columns of an item that a move to this state has to set; others only give up the lease."""

EXPIRE = f"UPDATE oncefence.work_items SET lease_until = clock_timestamp() - interval '1 s' {ITEM}"
OPEN_ATTEMPT = """
    INSERT INTO oncefence.effect_attempts (org_id, attempt_id, command_id, execution_id, work_id,
        ordinal, source_lane, target_lane, method, relative_target, safe_headers, body_address,
        lease_token, ownership_epoch, lease_owner, generation_id, token_version, link_id,
        link_version, validation, quota, prepared_at, started_at, started_as_of, deadline_ms)
    SELECT w.org_id, gen_random_uuid(), w.command_id, w.execution_id, w.work_id,
           1 + (SELECT count(*) FROM oncefence.effect_attempts AS a
                 WHERE a.org_id = w.org_id AND a.command_id = w.command_id),
           w.source_lane, w.target_lane, c.request_method, c.request_target, c.request_headers,
           c.request_body_address, w.lease_token, w.ownership_epoch, w.lease_owner,
           c.generation_id, 1, c.link_id, c.link_version, '{}', '[]', clock_timestamp(),
           clock_timestamp(), clock_timestamp(), w.deadline_ms
      FROM oncefence.work_items AS w
      JOIN oncefence.commands AS c ON c.org_id = w.org_id AND c.command_id = w.command_id
     WHERE w.org_id = :org AND w.work_id = :work
"""
OPEN = f"{ITEM} AND settled_at IS NULL"
SETTLE_AS_LOST = f"""
    UPDATE oncefence.effect_attempts SET settled_at = clock_timestamp(), settled_as = 'lost',
           outcome = 'OUTCOME_UNKNOWN', may_have_applied = true {OPEN}
"""
ADD_LOOKUP = """
    INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id, command_id,
        execution_id, installation, view_id, view_digest, view_revision, definition, provider,
        binding_id, queue_class, deadline_ms, state, via, run_after)
    SELECT org_id, gen_random_uuid(), 'effect.lookup', 'execution', execution_id::text, command_id,
           execution_id, installation, view_id, view_digest, view_revision, definition, provider,
           binding_id, queue_class, deadline_ms, 'pending', 'create', clock_timestamp()
      FROM oncefence.work_items WHERE org_id = :org AND work_id = :work
"""
ADD_DISPATCH = """
    INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id, command_id,
        execution_id, installation, view_id, view_digest, view_revision, definition, provider,
        binding_id, queue_class, deadline_ms, state, via, run_after, replays_work_id)
    SELECT org_id, gen_random_uuid(), family, subject_kind, subject_id, command_id, execution_id,
           installation, view_id, view_digest, view_revision, definition, provider, binding_id,
           queue_class, deadline_ms, 'pending', 'create', clock_timestamp(), work_id
      FROM oncefence.work_items WHERE org_id = :org AND work_id = :work
"""
LOOKUP = "WHERE org_id = :org AND execution_id = :execution AND family = 'effect.lookup'"
END_LOOKUP = (
    f"UPDATE oncefence.work_items SET state = 'processing', via = 'claim', {CLAIM} {LOOKUP}",
    f"UPDATE oncefence.work_items SET state = 'succeeded', via = 'finish', {NO_LEASE} {LOOKUP}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A committed row in a state, with the keys of its companions as parameters of statements."""

    world: World
    accepted: Accepted
    work: WorkId

    @property
    def keys(self) -> dict[str, object]:
        """The parameters that every statement here may name, but for the org."""
        return {"work": self.work, "execution": self.accepted.execution}

    async def commit(self, *statements: str) -> None:
        """The statements in one transaction of the application role."""
        for_all = dict(self.keys)
        await self.world.transaction(*statements, **for_all)


def move_item(target: str, trigger: str) -> str:
    """The move of an item, with the columns that have to follow."""
    also = ALSO.get(target, NO_LEASE)
    return f"UPDATE oncefence.work_items SET state = '{target}', via = '{trigger}', {also} {ITEM}"


def move_execution(target: str, trigger: str) -> str:
    """The move of an execution, with the columns that have to follow."""
    begins = int(trigger in ("begin_delivery", "begin_retry"))
    settles = int(target in ("succeeded", "failed", "cancelled"))
    why = "'by_hand'" if target == "failed" else "NULL"
    return (
        f"UPDATE oncefence.executions SET status = '{target}', via = '{trigger}',"
        f" attempt = attempt + {begins}, settlements = settlements + {settles},"
        f" failure_class = {why} WHERE org_id = :org AND execution_id = :execution"
    )


def settle_open(outcome: Outcome) -> str:
    """The open attempt settled by the claim that started it."""
    in_doubt = str(outcome is Outcome.OUTCOME_UNKNOWN).lower()
    return (
        "UPDATE oncefence.effect_attempts SET settled_at = clock_timestamp(),"
        " settled_as = 'starter', settled_token = lease_token, settled_epoch = ownership_epoch,"
        f" outcome = '{outcome}', may_have_applied = {in_doubt} {OPEN}"
    )


def with_execution(source: str, target: str, trigger: str) -> tuple[str, ...]:
    """What goes with a permitted move of an execution, in the same transaction."""
    match source, target:
        case _, "running":
            return (move_item("processing", "claim"), OPEN_ATTEMPT)
        case "running", "unknown" if trigger == "attempt_lost":
            return (EXPIRE, SETTLE_AS_LOST, move_item("dead", "attempt_lost"), ADD_LOOKUP)
        case "running", _:
            outcome, item = {
                "succeeded": (Outcome.ACCEPTED, move_item("succeeded", "finish")),
                "failed": (Outcome.REJECTED, move_item("dead", "give_up")),
                "cancelled": (Outcome.REJECTED, move_item("dead", "give_up")),
                "retrying": (Outcome.RETRYABLE_PRE_DISPATCH, move_item("retry", "defer")),
                "unknown": (Outcome.OUTCOME_UNKNOWN, move_item("dead", "give_up")),
            }[target]
            lookup = (ADD_LOOKUP,) if target == "unknown" else ()
            return (settle_open(outcome), item, *lookup)
        case (("accepted" | "retrying"), "unknown"):
            return (move_item("cancelled", "cancel"), ADD_LOOKUP)
        case (("accepted" | "retrying"), _):
            return (move_item("cancelled", "cancel"),)
        case "unknown", _:
            return END_LOOKUP
        case "failed", "retrying":
            return (ADD_DISPATCH,)
        case _:
            return ()


async def execution_in(world: World, status: str) -> Standing:
    """An execution in `status`."""
    lead = f"lead-{next(_leads)}"
    if status == "running":
        accepted, _ = await world.a_running_command(lead)
    elif status == "unknown":
        accepted, _, _ = await world.an_unknown_command(lead)
    elif status == "needs_attention":
        accepted, _ = await world.a_command_for_a_person(lead)
    else:
        accepted = await world.accept_command(lead)
    standing = Standing(world=world, accepted=accepted, work=accepted.work)
    outcome = {
        "retrying": Outcome.RETRYABLE_PRE_DISPATCH,
        "succeeded": Outcome.ACCEPTED,
        "failed": Outcome.REJECTED,
    }.get(status)
    if outcome is not None:
        await world.settle(await world.start(accepted), outcome)
    if status == "cancelled":
        await standing.commit(
            move_item("cancelled", "cancel"),
            move_execution("cancelled", "cancel_before_first_attempt"),
        )
    return standing


# The way to a state of an item that no phase leads to, from `pending`.
_BY_HAND = {
    "processing": (("processing", "claim"),),
    "skipped": (("processing", "claim"), ("skipped", "skip")),
    "cancelled": (("cancelled", "cancel"),),
    "awaiting_legacy_outcome": (("awaiting_legacy_outcome", "rollback_fence"),),
    "legacy_outcome_unknown": (
        ("awaiting_legacy_outcome", "rollback_fence"),
        ("legacy_outcome_unknown", "legacy_ambiguous"),
    ),
    "reconciled_legacy_terminal": (
        ("awaiting_legacy_outcome", "rollback_fence"),
        ("reconciled_legacy_terminal", "legacy_receipt"),
    ),
}


async def item_in(world: World, state: str) -> Standing:
    """A dispatch item in `state`; a claimed one is held, and nothing was started under it."""
    status = {"pending": "accepted", "retry": "retrying", "succeeded": "succeeded"}.get(state)
    if state == "dead":
        return await execution_in(world, "failed")
    if status is not None:
        return await execution_in(world, status)
    standing = await execution_in(world, "accepted")
    for target, trigger in _BY_HAND[state]:
        WORK_ITEM.check((await world.item(standing.work)).state, target, trigger)
        await standing.commit(move_item(target, trigger))
    return standing


async def item_with_open_attempt(world: World) -> Standing:
    """A dispatch item in `processing` under a live lease, with its attempt open."""
    return await execution_in(world, "running")


async def lookup_item_in(world: World, state: str) -> Standing:
    """A lookup item, `pending` or claimed (`processing`)."""
    accepted, _, lookup_work = await world.an_unknown_command(f"lead-{next(_leads)}")
    if state == "processing":
        await world.start_looking(lookup_work)
    return Standing(world=world, accepted=accepted, work=lookup_work)
