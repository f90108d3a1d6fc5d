"""Items of a family that nobody runs, of no command: what holds for these holds for any."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.renew_work import Renewed, renew_work
from oncefence.storage.phases.settle_work import WorkSettled, settle_work
from tests.support.world import World, seconds

FAMILY = "made.up"
DEADLINE_MS = 8_000
WHOLE_LEASE = seconds(DEADLINE_MS / 1000 + Limits().lease_margin_seconds)
ADD = """
    INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id,
        installation, view_id, view_digest, view_revision, definition, provider, binding_id,
        queue_class, deadline_ms, engine_capability, source_lane, source_sequence, target_lane,
        target_sequence, state, via, run_after)
    SELECT v.org_id, gen_random_uuid(), 'made.up', 'thing', 'one', v.installation, v.view_id,
           v.digest, v.revision, 'a.definition', 'a-provider', :binding, 'slow', 8000, :capability,
           CAST(:source AS text), CAST(:source_at AS bigint), CAST(:target AS text),
           CAST(:target_at AS bigint), 'pending', 'create', clock_timestamp()
      FROM oncefence.binding_views AS v WHERE v.org_id = :org
    RETURNING work_id
"""


async def an_item(
    world: World,
    *,
    capability: int = 2,
    source: tuple[str | None, int | None] = (None, None),
    target: tuple[str | None, int | None] = (None, None),
) -> WorkId:
    rows = await world.sql(
        ADD,
        binding=world.binding,
        capability=capability,
        source=source[0],
        source_at=source[1],
        target=target[0],
        target_at=target[1],
    )
    return WorkId(rows[0].work_id)


async def claim(
    world: World,
    work: WorkId,
    *,
    as_of: datetime | None = None,
    owner: UUID | None = None,
    token: LeaseToken | None = None,
    limits: Limits | None = None,
    family: str = FAMILY,
) -> ClaimedWork | NotStarted:
    return await claim_work(
        world.engine,
        world.org,
        work,
        family=family,
        as_of=as_of or max(await world.now(), (await world.item(work)).run_after),
        owner=owner or uuid4(),
        token=token or LeaseToken(uuid4()),
        limits=limits or world.limits,
    )


async def verdict(world: World, work: WorkId, **how: Any) -> str:
    answer = await claim(world, work, **how)
    return answer.verdict.value if isinstance(answer, NotStarted) else "claimed"


async def held(world: World) -> Fence:
    answer = await claim(world, await an_item(world))
    assert isinstance(answer, ClaimedWork)
    return answer.fence


async def renew(world: World, fence: Fence, *, deadline_ms: int = DEADLINE_MS) -> Renewed:
    return await renew_work(world.engine, fence, deadline_ms=deadline_ms, limits=world.limits)


async def end(
    world: World,
    fence: Fence,
    how: ClaimEnd = ClaimEnd.FINISH,
    *,
    limits: Limits | None = None,
    **more: Any,
) -> WorkSettled:
    run_after: datetime = (await world.item(fence.work)).run_after
    return await settle_work(
        world.engine,
        fence,
        WorkEnd(end=how, **more),
        as_of=max(await world.now(), run_after),
        limits=limits or world.limits,
    )


async def ask_to_cancel(world: World, work: WorkId) -> None:
    await world.sql(
        "UPDATE oncefence.work_items SET cancel_requested_at = clock_timestamp()"
        " WHERE org_id = :org AND work_id = :work",
        work=work,
    )


async def pause(world: World, **scope: object) -> None:
    columns = {"org_id": world.org, "provider": None, "definition": None, "binding_id": None}
    await world.sql(
        "INSERT INTO oncefence.pauses (org_id, pause_id, provider, definition, binding_id,"
        " paused_by, paused_note) SELECT :org_id, gen_random_uuid(), :provider, :definition,"
        " :binding_id, 'ann', 'a note' WHERE :org <> ''",
        **(columns | scope),
    )


async def resume(world: World, *, ago: str, ramp_seconds: float) -> None:
    await world.sql(
        "UPDATE oncefence.pauses SET resumed_by = 'ann', resumed_note = 'a note',"
        f" resumed_at = clock_timestamp() - interval '{ago}', ramp_seconds = :ramp"
        " WHERE org_id = :org",
        ramp=ramp_seconds,
    )


def of_another_token(fence: Fence) -> Fence:
    return replace(fence, token=LeaseToken(uuid4()))


def of_an_earlier_epoch(fence: Fence) -> Fence:
    return replace(fence, epoch=fence.epoch - 1)


STRANGERS = (of_another_token, of_an_earlier_epoch)
