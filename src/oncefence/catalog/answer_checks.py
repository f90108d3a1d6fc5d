"""What is wrong in the declared meaning of answers: statuses told twice, and dead words."""

import re
from collections.abc import Iterable, Iterator

from oncefence.catalog.answers import REDIRECTS, ReceiptSource, ResponseContract
from oncefence.catalog.expressions import EMPTY_ANSWERS, find, holds, shows
from oncefence.catalog.findings import Finding

_WITHOUT_BODY = {204, 205}
_SUCCESS_IS = "success is 2xx, or a declared 302 or 303, and nothing else is"
_NO_EVIDENCE = (
    "so the evidence could never be there; declare evidence = [] and no identity, or leave it out"
)
_LIMIT_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def answer_errors(at: str, answer: ResponseContract, *, is_create: bool) -> Iterator[Finding]:
    """All that no single key of `answer` shows."""
    yield from _statuses(at, answer)
    yield from _evidence(at, answer, is_create=is_create)
    yield from _items(at, answer, is_create=is_create)
    yield from _body_rules(at, answer)
    yield from evidence_errors(at, answer.evidence, answer.identity)
    yield from _waits(at, answer)
    for name, source in answer.receipt.items():
        yield from _receipt(f"{at}.receipt.{name}", source)


def evidence_errors(at: str, evidence: Iterable[str], identity: str | None) -> Iterator[Finding]:
    """What is shown by an answer that holds nothing, and so proves nothing of any answer."""
    for expression in evidence:
        if any(shows(expression, answer) for answer in EMPTY_ANSWERS):
            yield f"{at}.evidence", f"{expression!r} is there in an empty answer too"
    if identity is not None and any(find(identity, answer) is not None for answer in EMPTY_ANSWERS):
        yield f"{at}.identity", f"{identity!r} names a record in an empty answer too"


def _always(at: str, body: str) -> Iterator[Finding]:
    if any(holds(body, answer) for answer in EMPTY_ANSWERS):
        yield at, f"{body!r} holds of an empty answer too, so it would be said by any other sender"


def answer_risks(at: str, answer: ResponseContract) -> Iterator[Finding]:
    """What is sound and still worth a thought."""
    told_by_items = answer.items.statuses if answer.items else ()
    bare = [
        status
        for status in answer.success
        if status not in _WITHOUT_BODY | REDIRECTS and status not in told_by_items
    ]
    if not answer.evidence and bare:
        yield f"{at}.evidence", f"is empty, so any answer of {bare[0]} in JSON counts as success"


def _statuses(at: str, answer: ResponseContract) -> Iterator[Finding]:
    lists = {
        "success": answer.success,
        "rejected": answer.rejected,
        "not_applied": answer.not_applied,
    }
    holder: dict[int, str] = {}
    for name, statuses in lists.items():
        for status in statuses:
            if status in holder:
                yield (
                    f"{at}.{name}",
                    f"{status} is in {holder[status]} too; a status has one meaning",
                )
            holder.setdefault(status, name)
            is_good = status < 300 or (name == "success" and status in REDIRECTS)
            if is_good != (name == "success"):
                yield f"{at}.{name}", f"{status} cannot be there; {_SUCCESS_IS}"
            elif name == "rejected" and status >= 500:
                yield f"{at}.{name}", f"{status} tells of a fault, not of a refusal"


def _evidence(at: str, answer: ResponseContract, *, is_create: bool) -> Iterator[Finding]:
    needs_body = bool(answer.evidence) or answer.identity is not None
    for status in answer.success:
        if status in _WITHOUT_BODY and needs_body:
            yield f"{at}.success", f"{status} has no body, {_NO_EVIDENCE}"
        elif status in REDIRECTS and needs_body:
            yield f"{at}.success", f"{status} is not followed, {_NO_EVIDENCE}"
    if answer.identity is None and is_create:
        yield f"{at}.identity", "is required and missing: a create learns its record's id from it"
    elif answer.identity is None and answer.evidence:
        yield f"{at}.identity", "is required and missing where there is evidence"
    if is_create and not answer.evidence:
        yield f"{at}.evidence", "must name something: a create needs proof of its record"
    reads_body = set(answer.success) - _WITHOUT_BODY - REDIRECTS
    if answer.media_types and not reads_body:
        yield f"{at}.media_types", "has no effect: no success answer has a body"


def _items(at: str, answer: ResponseContract, *, is_create: bool) -> Iterator[Finding]:
    if answer.items is None:
        if 207 in answer.success:
            yield f"{at}.items", "is required and missing: 207 tells of each input apart"
        return
    if is_create:
        yield f"{at}.items", "cannot be: a create has no id yet by which it could be listed"
    for status in answer.items.statuses:
        if status not in answer.success:
            yield f"{at}.items.statuses", f"{status} must be in success"
    if set(answer.success) <= set(answer.items.statuses) and answer.evidence:
        yield f"{at}.evidence", "has no effect: every success is told by items; declare []"


def _body_rules(at: str, answer: ResponseContract) -> Iterator[Finding]:
    for index, refusal in enumerate(answer.refusals):
        here = f"{at}.refusals[{index}].statuses"
        yield from _always(f"{at}.refusals[{index}].body", refusal.body)
        for status in refusal.statuses:
            if status in answer.rejected:
                yield here, f"{status} has no effect: it is in rejected whatever the body says"
            elif status in answer.not_applied:
                yield here, f"{status} is in not_applied too; a status has one meaning"
            elif status >= 500:
                yield here, f"{status} tells of a fault, not of a refusal"
    for index, rule in enumerate(answer.not_applied_when):
        here = f"{at}.not_applied_when[{index}]"
        if rule.body is not None:
            yield from _always(f"{here}.body", rule.body)
        if rule.body is None and not rule.retry_after:
            yield here, "needs body or retry_after; what any answer proves goes into not_applied"
        for status in rule.statuses:
            if status in answer.not_applied:
                yield f"{here}.statuses", f"{status} has no effect: it is in not_applied anyway"
            elif status in answer.rejected:
                yield f"{here}.statuses", f"{status} is in rejected too; a status has one meaning"


def _waits(at: str, answer: ResponseContract) -> Iterator[Finding]:
    waiting = {*answer.not_applied}.union(*(rule.statuses for rule in answer.not_applied_when))
    for text in answer.wait_min_s:
        if text not in map(str, waiting):
            yield f"{at}.wait_min_s.{text}", "has no effect: the status is not in not_applied"
    if answer.wait_by is not None:
        if not waiting:
            yield f"{at}.wait_by", "has no effect: no answer permits another attempt"
        for name in answer.wait_by.waits:
            if not _LIMIT_NAME.fullmatch(name):
                yield f"{at}.wait_by.waits", f"{name!r} is never read: a limit's name is one word"
    if "retry_after" in answer.model_fields_set and not waiting:
        yield f"{at}.retry_after", "has no effect: no answer permits another attempt"
    if len(set(answer.retry_after.forms)) != len(answer.retry_after.forms):
        yield f"{at}.retry_after.forms", "names one twice"


def _receipt(at: str, source: ReceiptSource) -> Iterator[Finding]:
    if (source.body is None) == (source.header is None):
        yield at, "needs either body or header, and only one of them"
