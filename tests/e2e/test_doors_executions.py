"""What the caller of a command may know of it, and who may know it."""

from datetime import datetime
from uuid import uuid4

import httpx
import pytest

from oncefence.app.door_messages import CompletionReport, ExecutionReport, LocalContract
from oncefence.domain.effect import Outcome
from oncefence.domain.execution import ExecutionStatus
from oncefence.domain.lookup import Verdict
from oncefence.domain.settlement import Effect
from oncefence.storage.phases.read_execution import proven_effect
from tests.support.doors import OpenDoor, refusal
from tests.support.repairs import Repairs
from tests.support.world import World, an_end, scope_of


async def report_of(client: httpx.AsyncClient, execution: object) -> ExecutionReport:
    response = await client.get(f"/v1/executions/{execution}")
    assert response.status_code == 200, response.text
    return ExecutionReport.model_validate_json(response.content)


class TestAnExecution:
    async def test_has_one_name(self, client: httpx.AsyncClient, world: World) -> None:
        """Another spelling of an id is another address, and nothing is there."""
        accepted = await world.accept_command()
        canonical = str(accepted.execution)

        for spelt in (canonical.upper(), canonical.replace("-", ""), f"{{{canonical}}}"):
            answer = await client.get(f"/v1/executions/{spelt}")
            assert refusal(answer) == (404, "not_found")

    async def test_is_told_from_its_first_moment(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """Accepted, nothing tried, nothing known of any effect."""
        accepted = await world.accept_command()

        report = await report_of(client, accepted.execution)

        assert report.command_id == accepted.command
        assert report.handoff_key == str(accepted.handover.key)
        assert (report.status, report.via, report.attempts) == ("accepted", "create", 0)
        assert (report.effect, report.last_outcome, report.settled_by) == (None, None, None)
        assert isinstance(report.accepted_at, datetime)
        assert report.accepted_at.tzinfo is not None

    async def test_that_failed_says_what_is_proven_of_its_effect(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """Refused by the provider is another knowledge than looked for and not found (C68)."""
        refused, started = await world.a_running_command("lead-1")
        await world.settle(started, an_end(Outcome.REJECTED, may_have_applied=False))
        absent, _, lookup_work = await world.an_unknown_command("lead-2")
        for _ in range(5):
            await world.look(lookup_work, Verdict.NOT_FOUND)

        first = await report_of(client, refused.execution)
        second = await report_of(client, absent.execution)

        assert (first.status, first.effect, first.last_outcome) == (
            "failed",
            Effect.REFUSED_BY_PROVIDER,
            Outcome.REJECTED,
        )
        assert (first.attempts, first.failure_class, first.settled_by) == (1, "rejected", "worker")
        assert (second.status, second.effect, second.settled_by) == (
            "failed",
            Effect.NOT_FOUND,
            "investigator",
        )
        assert second.is_settled

    async def test_that_is_unknown_claims_nothing(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """Unknown is said as such: neither success nor failure, and no effect (C10)."""
        accepted, _, _ = await world.an_unknown_command()

        report = await report_of(client, accepted.execution)

        assert (report.status, report.effect) == ("unknown", None)
        assert report.last_outcome is Outcome.OUTCOME_UNKNOWN
        assert not report.is_settled

    async def test_carries_the_newest_completion_with_its_frozen_contract(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """None before it is settled; a later one names the one that it supersedes (C99)."""
        accepted, started = await world.a_running_command()
        open_ = await report_of(client, accepted.execution)
        await world.settle(started, an_end(Outcome.REJECTED, may_have_applied=False))
        failed = await report_of(client, accepted.execution)
        repairs = Repairs(world=world)
        again = await repairs.again(accepted, await repairs.replay(accepted.work))
        retrying = await report_of(client, accepted.execution)
        await world.settle(await world.start(again), Outcome.ACCEPTED)
        succeeded = await report_of(client, accepted.execution)

        first, second = f"{accepted.execution}:1", f"{accepted.execution}:2"
        contract = LocalContract(
            command="lead.title.pushed", version=1, data={"object": "lead", "field": "title"}
        )
        assert open_.completion is None
        assert failed.completion == CompletionReport(
            completion_id=first,
            settlement=1,
            status=ExecutionStatus.FAILED,
            supersedes=None,
            contract=contract,
        )
        assert (retrying.status, retrying.completion) == ("retrying", failed.completion)
        assert succeeded.completion == CompletionReport(
            completion_id=second,
            settlement=2,
            status=ExecutionStatus.SUCCEEDED,
            supersedes=first,
            contract=contract,
        )

    @pytest.mark.parametrize(("org", "capability"), [("acme", "other"), ("umbrella", "outbox")])
    async def test_of_another_scope_is_not_there(
        self, door: OpenDoor, client: httpx.AsyncClient, world: World, *, org: str, capability: str
    ) -> None:
        """The answer to a known id of another scope is that to an id of nothing (C8)."""
        accepted = await world.accept_command()
        stranger = door.client(await door.register(scope_of(org, capability=capability)))

        answers = [
            await stranger.get(f"/v1/executions/{execution}")
            for execution in (accepted.execution, uuid4(), "x", str(accepted.execution).upper())
        ]
        mine = await client.get(f"/v1/executions/{uuid4()}")

        assert [refusal(answer) for answer in answers] == [(404, "not_found")] * 4
        assert {answer.text for answer in answers} == {mine.text}


@pytest.mark.parametrize(
    ("status", "outcomes", "dispositions", "effect"),
    [
        ("succeeded", ["ACCEPTED"], [None], None),
        ("unknown", ["OUTCOME_UNKNOWN"], [None], None),
        ("failed", [], [], Effect.NONE_PROVEN),
        ("failed", ["RETRYABLE_PRE_DISPATCH"] * 2, [None, None], Effect.NONE_PROVEN),
        ("failed", ["OUTCOME_UNKNOWN"], ["no_effect_proof"], Effect.NONE_PROVEN),
        ("failed", ["OUTCOME_UNKNOWN"], ["not_found"], Effect.NOT_FOUND),
        ("failed", ["OUTCOME_UNKNOWN"], ["refused"], Effect.REFUSED_BY_PROVIDER),
        ("failed", ["OUTCOME_UNKNOWN"], ["person"], Effect.PERSON),
        (
            "failed",
            ["OUTCOME_UNKNOWN", "REJECTED"],
            ["no_effect_proof", None],
            Effect.REFUSED_BY_PROVIDER,
        ),
        ("failed", ["REJECTED", "OUTCOME_UNKNOWN"], [None, "not_found"], Effect.NOT_FOUND),
    ],
)
def test_an_effect_is_read_from_the_attempts(
    status: str, outcomes: list[str], dispositions: list[str | None], effect: Effect | None
) -> None:
    """What is proven follows from the rows and is stored nowhere beside them (C68)."""

    assert proven_effect(status, outcomes, dispositions) == effect
