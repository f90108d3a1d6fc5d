"""
Where a life can be struck, and by what.

Every transaction of `storage/phases` and every network call has its named points. The lists here
are held against the code by `tests/tidy/test_crash_points.py`.
"""

import ast
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

PHASES = Path(__file__).parents[2] / "storage" / "oncefence" / "storage" / "phases"


class Action(StrEnum):
    """What happens to the life that reaches a point."""

    KILL = "kill"
    """SIGKILL, and another life begins."""
    FREEZE = "freeze"
    """SIGSTOP; thawed when another life has done the work meanwhile."""
    CUT = "cut"
    """The one connection in use breaks; of `inside` and `commit_lost` alone."""
    DROP = "drop"
    """All connections to the database break, and for a moment none can be made."""
    CANCEL = "cancel"
    """The activity is cancelled as Temporal's SDK does it."""
    TIME_OUT = "start_to_close"
    """start_to_close passes: cancelled, and run again at once here and in another life."""
    TERMINATE = "terminate"
    """The workflow is gone: another life begins at once while this one goes on."""
    RESTART = "restart_postgres"
    """The database server crashes and comes back."""


class Moment(StrEnum):
    """When, around one transaction."""

    BEFORE = "before"
    INSIDE = "inside"
    """The statement is on its way, and its COMMIT never arrives."""
    COMMIT_LOST = "commit_lost"
    """It is durable, and the answer is swallowed."""
    AFTER = "after"


class Step(StrEnum):
    """When, around one network call."""

    BEFORE_CONNECT = "before_connect"
    BEFORE_FIRST_BYTE = "before_first_byte"
    MID_REQUEST = "mid_request"
    AFTER_REQUEST = "after_request"
    AFTER_ANSWER = "after_answer"


INTERRUPTIONS = (Action.CANCEL, Action.TIME_OUT, Action.TERMINATE)

SETUP_VERBS = ("register_runtime", "add_principal_binding", "publish_view", "adopt_link")
DOOR_VERBS = (
    "authenticate",
    "stage_payload",
    "resolve_handoff",
    "accept_handoff",
)
CONTEST_VERBS = ("find_live_dispatch", "record_conflict", "refuse_scope")
SIGNED_VERBS = ("find_work_binding", "find_room")
REJECT_VERBS = ("reject_handoff", "find_admission")
DISPATCH_VERBS = ("start_attempt", "read_view", "settle_attempt", "find_successors")
LOOKUP_VERBS = ("start_lookup", "settle_lookup")
LOST_VERBS = ("settle_lost_attempt",)
LATE_VERBS = ("record_evidence",)
FIRST_LOOK_VERBS = ("begin_first_look", "settle_first_look")
KIN_VERBS = ("add_work", "claim_work", "renew_work", "settle_work")
OPERATE_VERBS = (
    "pause_work",
    "give_back_place",
    "resume_work",
    "open_window",
    "cancel_work",
    "begin_replay",
    "replay_work",
    "add_operator",
    "revoke_operator",
    "activate_view",
)
RECLAIM_VERBS = ("reclaim_work",)
RENEW_VERBS = ("begin_refresh", "settle_refresh", "release_waiters")
SWEEP_VERBS = ("find_due_work", "note_nudges", "expire_refreshes", "erase_staged")
END_VERBS = ("read_execution",)

VERBS = (
    *SETUP_VERBS,
    *DOOR_VERBS,
    *CONTEST_VERBS,
    *SIGNED_VERBS,
    *REJECT_VERBS,
    *SWEEP_VERBS,
    *DISPATCH_VERBS,
    *LOST_VERBS,
    *LATE_VERBS,
    *LOOKUP_VERBS,
    *FIRST_LOOK_VERBS,
    *KIN_VERBS,
    *OPERATE_VERBS,
    *RECLAIM_VERBS,
    *RENEW_VERBS,
    *END_VERBS,
)
"""The transactions in whose points the scenarios strike."""

EFFECT_CALLS = ("send", "lookup_read")
TOKEN_CALL = "token_call"
CALLS = (*EFFECT_CALLS, TOKEN_CALL)
"""The network calls, likewise; the read before a create is a lookup's read too."""

READS_ALONE = "one read for a screen; nothing is written, and nothing follows from it"
READ_MODEL = "it writes a reading of the items alone, which the next rebuild makes anew"
REWRAPS = "nothing is sent around it; its own tests kill it between any two of its steps"
ACCOUNTS = "no item and no claim: its own tests kill it between any two of its steps"
NOT_STRUCK: Mapping[str, str] = {
    "add_provider_app": ACCOUNTS,
    "begin_authorization": ACCOUNTS,
    "take_authorization": ACCOUNTS,
    "take_own_authorization": ACCOUNTS,
    "settle_authorization": ACCOUNTS,
    "disconnect_binding": ACCOUNTS,
    "begin_revocation": ACCOUNTS,
    "settle_revocation": ACCOUNTS,
    "rebind_principal": ACCOUNTS,
    "list_provider_apps": READS_ALONE,
    "list_bindings": READS_ALONE,
    "find_binding": READS_ALONE,
    "list_generations": READS_ALONE,
    "list_requests": READS_ALONE,
    "find_request": READS_ALONE,
    "find_bound_classes": READS_ALONE,
    "audit_invariants": READS_ALONE,
    "read_facts": READS_ALONE,
    "read_clock": READS_ALONE,
    "read_wrapped_keys": READS_ALONE,
    "check_keys": READS_ALONE,
    "read_key_use": READS_ALONE,
    "find_generations_to_rewrap": READS_ALONE,
    "rewrap_keys": REWRAPS,
    "rewrap_generation": REWRAPS,
    "read_command": READS_ALONE,
    "read_progress": READS_ALONE,
    "probe_store": READS_ALONE,
    "authenticate_operator": READS_ALONE,
    "list_operators": READS_ALONE,
    "list_audit": READS_ALONE,
    "verify_audit_chain": READS_ALONE,
    "read_pressure": READS_ALONE,
    "rebuild_pressure": READ_MODEL,
    "drop_pressure": READ_MODEL,
    "list_work": READS_ALONE,
    "show_work": READS_ALONE,
    "list_dead_letters": READS_ALONE,
    "show_dead_letter": READS_ALONE,
    "plan_replay": READS_ALONE,
    "list_pauses": READS_ALONE,
    "list_views": READS_ALONE,
    "read_revisions": READS_ALONE,
    "find_held_classes": READS_ALONE,
    "list_breakers": READS_ALONE,
    "list_quota": READS_ALONE,
    "read_breaker": READS_ALONE,
    "count_breakers": READS_ALONE,
    "override_breaker": "one row and its audit row; nothing is sent around it, and the same act "
    "again finds what it did",
    "bring_forward": "a hint: what it has not brought forward comes by itself at its time",
    "take_back_nudges": "a hint more or less: kept, the nudge counts for two minutes",
}
"""Transactions without points, each with its reason."""

NO_VERB: Mapping[str, str] = {
    "check_store": "reads before a process begins, which then ends or begins",
    "migrate_schema": "one transaction of DDL by the migrator; no worker runs it",
}
"""Modules of `phases` that open a transaction outside of `run_phase`, each with its reason."""


def point(verb: str, moment: Moment | Step) -> str:
    """The name of a point."""
    return f"{verb}.{moment}"


def points_of(*names: str) -> tuple[str, ...]:
    """The points of these verbs and calls."""
    return tuple(
        point(name, moment) for name in names for moment in (Step if name in CALLS else Moment)
    )


POINTS = points_of(*VERBS, *CALLS)


def is_in_transaction(name: str) -> bool:
    """Whether the proxy strikes there, because only the wire shows that moment."""
    return name.endswith((f".{Moment.INSIDE}", f".{Moment.COMMIT_LOST}"))


# --- what the code has ----------------------------------------------------------------------


def verbs_in(source: str) -> set[str]:
    """
    The verbs of the transactions in a module: the first argument of each `run_phase`.

    Where that is a parameter of the function around it, the verbs are what callers pass there.
    """
    module = ast.parse(source)
    verbs: set[str] = set()
    for function in _functions(module):
        names = [argument.arg for argument in function.args.args]
        for call in _calls(function, "run_phase"):
            match call.args[0]:
                case ast.Constant(value=str(verb)):
                    verbs.add(verb)
                case ast.Name(id=name) if name in names:
                    place = names.index(name)
                    verbs |= {
                        verb
                        for passed in _calls(module, function.name)
                        if isinstance(passed.args[place], ast.Constant)
                        and isinstance(verb := passed.args[place].value, str)
                    }
                case other:
                    raise AssertionError(f"run_phase({ast.unparse(other)}): give it a plain verb")
    return verbs


def transactions_outside_of_run_phase(source: str) -> list[str]:
    """Functions that open a connection, although no `run_phase` runs them."""
    module = ast.parse(source)
    run = {ast.unparse(call.args[1]) for call in _calls(module, "run_phase") if len(call.args) > 1}
    return [
        function.name
        for function in _functions(module)
        if function.name not in run
        and any(isinstance(node, ast.AsyncWith) and _opens(node) for node in _own_nodes(function))
    ]


def _opens(node: ast.AsyncWith) -> bool:
    return any(
        (opened := ast.unparse(item.context_expr)).endswith((".connect()", ".begin()"))
        or opened.startswith("driver_connection(")
        for item in node.items
    )


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.extend(ast.iter_child_nodes(node))


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
            yield node


def verbs_in_code() -> dict[str, str]:
    """Every verb of `storage/phases`, with the module that it is in."""
    return {
        verb: path.stem
        for path in sorted(PHASES.glob("*.py"))
        for verb in verbs_in(path.read_text(encoding="utf-8"))
    }
