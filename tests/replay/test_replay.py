"""Histories that were recorded from real runs are replayed by the workflows as they are now."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from oncefence.app import bootstrap
from oncefence.workflows import work_item
from tests.replay.changed import CHANGED
from tests.replay.record import FOLDER, OF_EARLIER_VERSIONS, RECORDINGS

CORPUS = sorted(FOLDER.glob("*.json"))
# What each recording is named for, as it has to be found in its history.
SIGNS = {
    "item-local-success": "MARKER_RECORDED",
    "item-regular-success": "ACTIVITY_TASK_COMPLETED",
    "item-local-retry-after-429": "TIMER_STARTED",
    "item-regular-retry-after-429": "TIMER_STARTED",
    "item-lookup-ladder-to-a-person": "TIMER_FIRED",
    "item-lane-blocked-and-woken": "TIMER_CANCELED",
    "item-in-flight-elsewhere": "TIMER_CANCELED",
    "item-regular-store-away": "ACTIVITY_TASK_TIMED_OUT",
    "item-woken-early": "TIMER_CANCELED",
    "item-cancelled": "WORKFLOW_EXECUTION_CANCELED",
    "item-reset-after-its-end": "WORKFLOW_TASK_FAILED",
    "item-junk-signals": "WORKFLOW_EXECUTION_SIGNALED",
    "handoff-accepted": "WORKFLOW_EXECUTION_UPDATE_COMPLETED",
    "handoff-by-signal-after-junk": "WORKFLOW_EXECUTION_SIGNALED",
    "handoff-idle": "TIMER_FIRED",
    "handoff-cancelled": "WORKFLOW_EXECUTION_CANCELED",
}


def history_of(path: Path) -> WorkflowHistory:
    """The recorded history under the id of its workflow, which some workflows compute with."""
    text = path.read_text(encoding="utf-8")
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


def type_of(path: Path) -> str:
    """The name of the workflow's type."""
    event = history_of(path).events[0]
    return event.workflow_execution_started_event_attributes.workflow_type.name


@pytest.fixture
def production(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What bootstrap gives to the Worker of the program."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(bootstrap, "Worker", lambda _, **options: given.update(options))
    bootstrap.make_worker(None, "recorded", None)
    return given


def replayer(production: dict[str, Any], *workflows: type) -> Replayer:
    """A Replayer with the sandbox and the converter of the program, and its workflows if none."""
    return Replayer(
        workflows=list(workflows) or production["workflows"],
        workflow_runner=production["workflow_runner"],
        data_converter=pydantic_data_converter,
    )


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
async def test_a_recorded_history_is_replayed(path: Path, production: dict[str, Any]) -> None:
    """What is open in Temporal when a version is installed must go on under it (C382)."""
    await replayer(production).replay_workflow(history_of(path))


def test_the_corpus_is_whole(production: dict[str, Any]) -> None:
    """Every recording is there and no other, and every workflow of the program has some."""
    assert {path.stem for path in CORPUS} == set(RECORDINGS) | OF_EARLIER_VERSIONS
    registered = {
        workflow.__temporal_workflow_definition.name for workflow in production["workflows"]
    }
    assert {type_of(path) for path in CORPUS} == registered


@pytest.mark.parametrize("name", SIGNS)
def test_a_recording_shows_what_it_is_named_for(name: str) -> None:
    """A corpus of happy ends would be replayed by almost anything."""
    kinds = {
        event["eventType"].removeprefix("EVENT_TYPE_")
        for event in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["events"]
    }

    assert SIGNS[name] in kinds


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
async def test_no_history_is_replayed_by_a_changed_workflow(
    path: Path, production: dict[str, Any]
) -> None:
    """A replay that passes whatever is changed proves nothing."""
    with pytest.raises(NondeterminismError):
        await replayer(production, *CHANGED).replay_workflow(history_of(path))


@pytest.mark.parametrize(
    ("name", "change", "value"),
    [
        ("item-local-success", "FUSED_DEADLINE_MS_MAX", 0),
        ("item-regular-success", "FUSED_DEADLINE_MS_MAX", 10**9),
        ("item-lookup-success", "_RUNS", {"effect.lookup": "run_attempt"}),
        ("item-regular-retry-after-429", "_RUNS", {"effect.dispatch": "run_lookup"}),
    ],
)
async def test_a_small_change_is_seen_too(
    name: str,
    change: str,
    value: object,
    production: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another form or another handler for what is open is as wrong as another order."""
    monkeypatch.setattr(work_item, change, value)

    with pytest.raises(NondeterminismError):
        await replayer(production).replay_workflow(history_of(FOLDER / f"{name}.json"))
