"""
Which cells there are.

Singles are written down: each point is struck, each fault happens, in both forms. Pairs are drawn:
two crashes each, from a seed and a number alone, so that any of them can be played again.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

from oncefence.simulator.faults import SEEDED_FAULTS, Fault
from tests.crashgrid.cell import Cell, Story, Thaw, Trap
from tests.crashgrid.points import (
    CONTEST_VERBS,
    DISPATCH_VERBS,
    DOOR_VERBS,
    EFFECT_CALLS,
    END_VERBS,
    FIRST_LOOK_VERBS,
    INTERRUPTIONS,
    KIN_VERBS,
    LATE_VERBS,
    LOOKUP_VERBS,
    LOST_VERBS,
    OPERATE_VERBS,
    POINTS,
    RECLAIM_VERBS,
    REJECT_VERBS,
    RENEW_VERBS,
    SETUP_VERBS,
    SIGNED_VERBS,
    SWEEP_VERBS,
    TOKEN_CALL,
    Action,
    is_in_transaction,
    points_of,
)
from tests.support.dialect import Form

CORE = points_of(*DISPATCH_VERBS[::2], *LOST_VERBS, *LATE_VERBS, *LOOKUP_VERBS, *EFFECT_CALLS)
"""Where the promise is kept or broken: the mark, the sends, and every settling."""

FIRST_LOOK = points_of(*FIRST_LOOK_VERBS)
RENEWING = points_of(*RENEW_VERBS, TOKEN_CALL)
"""Around the call for a token, which is an effect of its own."""

# After the send a create with a key and one without go the same ways, which they share out.
CREATES = {
    Story.CREATE: points_of(*DISPATCH_VERBS[::2], *LOOKUP_VERBS, *EFFECT_CALLS),
    Story.LOOK_FIRST: points_of(*DISPATCH_VERBS[::2], *LOST_VERBS, *LATE_VERBS, *EFFECT_CALLS),
}

FAULTS_HERE = tuple(fault for fault in Fault if fault is not Fault.REFUSE)
LOOKUP_FAULTS = tuple(
    fault for fault in SEEDED_FAULTS if fault not in (Fault.OVERWRITTEN, Fault.LATE_ANSWER)
)

# Found by a property that a person then changed, a record cannot be told from none. Under a key
# that comes to pass where two crashes leave nothing but the lookup.
_NOT_FOUND_BY = {Story.LOOK_FIRST: (Fault.OVERWRITTEN,)}
_NOT_FOUND_AFTER_TWO = dict.fromkeys(CREATES, (Fault.OVERWRITTEN,))

_FREEZE_AND_SETTLE = Trap(point="send.after_answer", action=Action.FREEZE, is_scripted=True)
_DIE_UNSETTLED = Trap(point="send.after_request", action=Action.KILL, is_scripted=True)
_RESTARTS = (
    "accept_handoff.commit_lost",
    "start_attempt.commit_lost",
    "start_attempt.inside",
    "send.after_request",
    "settle_attempt.before",
    "settle_attempt.inside",
    "settle_lookup.commit_lost",
    "settle_first_look.commit_lost",
)


def _verb(point: str) -> str:
    return point.partition(".")[0]


def _single(point: str, action: Action, form: Form, *, thaw: Thaw = Thaw.END) -> dict[str, object]:
    """The story that comes to the point, with the crash that happens there."""
    trap = Trap(point=point, action=action)
    given: dict[str, object] = {"form": form, "traps": (trap,), "thaw": thaw}
    verb = _verb(point)
    if verb in SETUP_VERBS:
        return given | {"story": Story.SETUP}
    if verb in CONTEST_VERBS:
        return given | {"story": Story.CONTEST}
    if verb in SIGNED_VERBS:
        return given | {"story": Story.SIGNED}
    if verb in REJECT_VERBS:
        return given | {"story": Story.REJECT}
    if verb in KIN_VERBS:
        return given | {"story": Story.KIN}
    if verb in OPERATE_VERBS:
        return given | {"story": Story.OPERATE}
    if verb in RECLAIM_VERBS:
        return given | {"story": Story.OPERATE, "traps": (_DIE_UNSETTLED, trap)}
    if verb in RENEW_VERBS or verb == TOKEN_CALL:
        return given | {"story": Story.RENEW}
    if verb in FIRST_LOOK_VERBS:
        return given | {"story": Story.LOOK_FIRST}
    if verb in LATE_VERBS:
        return given | {"traps": (_FREEZE_AND_SETTLE, trap)}
    if verb in LOST_VERBS:
        return given | {"traps": (_DIE_UNSETTLED, trap)}
    if verb in LOOKUP_VERBS or verb == "lookup_read":
        return given | {"fault": Fault.RESET_AFTER_COMMIT}
    return given


def _struck_once() -> Iterator[dict[str, object]]:
    forms, links = itertools.cycle(Form), itertools.cycle([Action.KILL, Action.CUT])
    for point in POINTS:
        if point in (*CORE, *FIRST_LOOK):
            for form in Form:
                yield _single(point, Action.KILL, form)
        else:
            action = next(links) if is_in_transaction(point) else Action.KILL
            yield _single(point, action, next(forms))


def _struck_otherwise() -> Iterator[dict[str, object]]:
    forms, thaws, interruptions = map(itertools.cycle, (Form, Thaw, INTERRUPTIONS))
    for point in (*CORE, *FIRST_LOOK):
        # Three crashes a point and two forms: the form of each changes from point to point.
        # What wakes last must not send at all; elsewhere it may also wake in between.
        thaw = Thaw.END if _verb(point) == "send" else next(thaws)
        yield _single(point, Action.FREEZE, next(forms), thaw=thaw)
        yield _single(point, Action.CUT if is_in_transaction(point) else Action.DROP, next(forms))
        yield _single(point, next(interruptions), next(forms))


def _creates_struck() -> Iterator[dict[str, object]]:
    forms, interruptions = itertools.cycle(Form), itertools.cycle(INTERRUPTIONS)
    for story, points in CREATES.items():
        for number, point in enumerate(points):
            # One crash a point, where the changes of records have five: the code is the same.
            match number % 4:
                case 0:
                    action = Action.KILL
                case 1:
                    action = Action.FREEZE
                case 2:
                    action = Action.CUT if is_in_transaction(point) else Action.DROP
                case _:
                    action = next(interruptions)
            given = _single(point, action, next(forms)) | {"story": story, "fault": None}
            is_lookup = _verb(point) in LOOKUP_VERBS or _verb(point) == "lookup_read"
            if is_lookup and story is Story.CREATE:
                # Under a key an answer that is lost is asked for again, and not looked up.
                given["traps"] = (_DIE_UNSETTLED, Trap(point=point, action=action))
            yield given


def _renewals_struck() -> Iterator[dict[str, object]]:
    forms, interruptions = itertools.cycle(Form), itertools.cycle(INTERRUPTIONS)
    for point in RENEWING:
        link = Action.CUT if is_in_transaction(point) else Action.DROP
        for action in (Action.FREEZE, link, next(interruptions)):
            yield _single(point, action, next(forms))
        yield _single(point, Action.KILL, next(forms)) | {"story": Story.RENEW_AGAIN}
        yield _single(point, Action.FREEZE, next(forms)) | {"story": Story.RENEW_AGAIN}


def _found_and_struck() -> Iterator[dict[str, object]]:
    """Where the look ends the create: it is settled once, and its slot given back."""
    for form in Form:
        yield {"story": Story.LOOK_FIRST, "form": form, "is_there": True}
    for point, action in (
        ("settle_first_look.before", Action.FREEZE),
        ("settle_first_look.inside", Action.CUT),
        ("settle_first_look.commit_lost", Action.CUT),
        ("settle_first_look.commit_lost", Action.KILL),
        ("settle_first_look.after", Action.KILL),
        ("settle_first_look.after", Action.TERMINATE),
    ):
        yield _single(point, action, Form.LOCAL) | {"is_there": True}


def _kin_struck_otherwise() -> Iterator[dict[str, object]]:
    for point, action in (
        ("claim_work.after", Action.FREEZE),
        ("renew_work.before", Action.FREEZE),
        ("settle_work.before", Action.FREEZE),
        ("claim_work.commit_lost", Action.DROP),
        ("settle_work.inside", Action.DROP),
        ("claim_work.after", Action.CANCEL),
        ("settle_work.before", Action.TIME_OUT),
        ("renew_work.after", Action.TERMINATE),
    ):
        yield _single(point, action, Form.LOCAL)


def _faults() -> Iterator[dict[str, object]]:
    points = itertools.cycle(
        ["settle_attempt.before", "send.after_answer", "start_lookup.after", "start_attempt.after"]
    )
    for fault in FAULTS_HERE:
        for form in Form:
            yield {"form": form, "fault": fault}
        yield {"fault": fault, "traps": (Trap(point=next(points), action=Action.KILL),)}
    for form in Form:
        yield {"form": form, "fault": Fault.REFUSE}


def _faults_of_creates() -> Iterator[dict[str, object]]:
    forms = itertools.cycle(Form)
    for story in CREATES:
        for fault in Fault:
            if fault not in _NOT_FOUND_BY.get(story, ()):
                yield {"story": story, "form": next(forms), "fault": fault}
    for fault in LOOKUP_FAULTS:
        yield {"story": Story.LOOK_FIRST, "form": next(forms), "lookup_fault": fault}


def _restarts() -> Iterator[dict[str, object]]:
    for point, form in zip(_RESTARTS, itertools.cycle(Form), strict=False):
        yield _single(point, Action.RESTART, form)


def _faultless() -> Iterator[dict[str, object]]:
    for story, form in itertools.product(Story, Form):
        yield {"story": story, "form": form}
        yield {"story": story, "form": form}


def singles() -> list[Cell]:
    """Every cell with one crash or none."""
    given = [
        *_restarts(),
        *_faultless(),
        *_struck_once(),
        *_struck_otherwise(),
        *_creates_struck(),
        *_renewals_struck(),
        *_found_and_struck(),
        *_kin_struck_otherwise(),
        *_faults(),
        *_faults_of_creates(),
    ]
    return [
        Cell(name=f"single-{number}", **each)  # type: ignore[arg-type]  # made in this file
        for number, each in enumerate(given)
    ]


def once() -> list[Cell]:
    """
    Of the singles one for each point, each fault and each story: what every run of the tests tries.

    The others are the same points by other crashes and in the other form.
    """
    seen: set[object] = set()
    chosen = []
    for cell in singles():
        of = {trap.point for trap in cell.traps if not trap.is_scripted} or {
            (cell.story, cell.fault, cell.lookup_fault, cell.is_there)
        }
        if not of <= seen:
            seen |= of
            chosen.append(cell)
    return chosen


# --- pairs ----------------------------------------------------------------------------------

_POINTS_OF = {
    Story.SETUP: (*points_of(*SETUP_VERBS) * 3, *CORE),
    Story.CONTEST: (*points_of(*DOOR_VERBS, *CONTEST_VERBS) * 2, *CORE),
    Story.SIGNED: (*points_of(*SIGNED_VERBS, "accept_handoff", "find_live_dispatch") * 4, *CORE),
    Story.REJECT: (*points_of("accept_handoff", *REJECT_VERBS) * 4, *CORE),
    Story.KIN: points_of(*KIN_VERBS),
    Story.OPERATE: (*points_of(*OPERATE_VERBS, *RECLAIM_VERBS) * 2, *CORE),
    Story.CREATE: (*points_of("accept_handoff"), *CORE),
    Story.LOOK_FIRST: (*points_of("accept_handoff"), *FIRST_LOOK * 4, *CORE),
    Story.DELIVER: (
        *points_of(*DOOR_VERBS, *SWEEP_VERBS, *DISPATCH_VERBS, *LATE_VERBS, *LOOKUP_VERBS),
        *points_of(*LOST_VERBS, *END_VERBS),
        *CORE * 3,
    ),
    Story.RENEW: (*RENEWING * 3, *CORE),
    Story.RENEW_AGAIN: (*RENEWING * 3, *CORE),
}
_STORY_ODDS = {
    Story.DELIVER: 64,
    Story.CONTEST: 10,
    Story.REJECT: 12,
    Story.SIGNED: 8,
    Story.SETUP: 6,
    Story.KIN: 8,
    Story.OPERATE: 10,
    Story.CREATE: 14,
    Story.LOOK_FIRST: 20,
    Story.RENEW: 10,
    Story.RENEW_AGAIN: 6,
}
_ACTIONS = {
    Action.KILL: 30,
    Action.FREEZE: 25,
    Action.DROP: 10,
    Action.CANCEL: 8,
    Action.TIME_OUT: 8,
    Action.TERMINATE: 8,
}
# One in three hundred: its cell has a server to itself, which takes time to come back.
_RESTART_ODDS = 0.003


def pair(seed: int, number: int) -> Cell:
    """The cell that this seed and number stand for."""
    dice = random.Random(f"{seed}/{number}")
    story = dice.choices(list(_STORY_ODDS), weights=list(_STORY_ODDS.values()))[0]
    faults = [each for each in FAULTS_HERE if each not in _NOT_FOUND_AFTER_TWO.get(story, ())]
    fault = dice.choice(faults) if dice.random() < 0.6 else None
    if dice.random() < _RESTART_ODDS:
        fault = Fault.REFUSE
    lookup_fault = dice.choice(LOOKUP_FAULTS) if dice.random() < 0.2 else None
    return Cell(
        name=f"pair-{seed}-{number}",
        story=story,
        form=dice.choice(list(Form)),
        fault=fault,
        lookup_fault=lookup_fault,
        traps=(_drawn(dice, story), _drawn(dice, story)),
        thaw=dice.choice(list(Thaw)),
        is_there=story is Story.LOOK_FIRST and dice.random() < 0.2,
    )


def _drawn(dice: random.Random, story: Story) -> Trap:
    point = dice.choice(_POINTS_OF[story])
    actions = dict(_ACTIONS)
    if is_in_transaction(point):
        actions[Action.CUT] = 20
    if _verb(point) in SETUP_VERBS:
        # One operator makes the account; two at once would be two handoffs.
        actions = {name: odds for name, odds in actions.items() if name in _FOR_OPERATORS}
    if dice.random() < _RESTART_ODDS:
        return Trap(point=point, action=Action.RESTART)
    return Trap(point=point, action=dice.choices(list(actions), weights=actions.values())[0])


_FOR_OPERATORS = (Action.KILL, Action.DROP, Action.CUT)


def pairs(seed: int, count: int) -> Sequence[Cell]:
    """That many of them."""
    return [pair(seed, number) for number in range(count)]
