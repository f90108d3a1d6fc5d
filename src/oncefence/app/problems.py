"""
What a door answers when it will not or cannot: problem documents of RFC 9457 (C12).

`code` is stable and for programs, `detail` says what to do and is for people. Neither repeats a
credential, a payload or anything of another scope.
"""

import traceback
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncefence.app.door_messages import ProblemDocument
from oncefence.catalog.errors import PayloadRefused, UnknownOperation
from oncefence.domain.errors import (
    ActRefused,
    HandoffAlreadyRejected,
    HandoffConflict,
    HandoffKeyMalformed,
    NoSuchTarget,
    OncefenceError,
    Refused,
    ScopeRefused,
    StoreUnavailable,
    SubjectTaken,
    VersionMoved,
)

PROBLEM_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1

log = structlog.get_logger("oncefence.doors")


@dataclass(eq=False)
class RequestRefused(Refused):
    """The request itself breaks a rule of the door, before anything of the kernel is asked."""

    status: int
    code: str
    detail: str
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail


TITLES: Final = {
    "credential_unknown": "A valid credential is needed",
    "scope_refused": "Outside of the credential's work scope",
    "not_found": "No such thing",
    "method_not_allowed": "No such method here",
    "handoff_conflict": "The handoff key stands for something else",
    "handoff_already_rejected": "The handoff key was rejected",
    "body_too_large": "The body is too large",
    "media_type_unsupported": "The body is of another media type",
    "json_refused": "The body is not strict JSON",
    "body_invalid": "The body is not of the declared form",
    "handoff_key_malformed": "Not a handoff key",
    "breaker_key_malformed": "Not a breaker's key",
    "payload_digest_malformed": "Not a payload digest",
    "payload_digest_mismatch": "The digest is not that of the body",
    "no_such_target": "Something that the request names is not there",
    "subject_taken": "What is to be created is there, or soon will be",
    "payload_refused": "The payload cannot become an exact request",
    "unknown_operation": "No such operation",
    "request_refused": "The request is refused",
    "store_unavailable": "The database does not answer",
    "draining": "The process stops",
    "internal_error": "Something failed here",
    "operator_unknown": "A valid operator token is needed",
    "act_not_allowed": "Not allowed to this operator",
    "version_moved": "It changed since it was looked at",
    "act_refused": "It cannot be done as things stand",
    "no_such_view": "No such read model",
    "query_invalid": "The address asks for something of another form",
}
"""Every code that a door answers with, and the sentence that goes with it always."""

# Only what a caller can cause. A refusal that is not here (a lost key ring, a stored view that
# cannot be read) is a fault of the deployment and is answered as one.
KERNEL_REFUSALS: Final[dict[type[OncefenceError], tuple[HTTPStatus, str]]] = {
    ScopeRefused: (HTTPStatus.FORBIDDEN, "scope_refused"),
    HandoffConflict: (HTTPStatus.CONFLICT, "handoff_conflict"),
    HandoffAlreadyRejected: (HTTPStatus.CONFLICT, "handoff_already_rejected"),
    HandoffKeyMalformed: (HTTPStatus.UNPROCESSABLE_ENTITY, "handoff_key_malformed"),
    NoSuchTarget: (HTTPStatus.UNPROCESSABLE_ENTITY, "no_such_target"),
    SubjectTaken: (HTTPStatus.CONFLICT, "subject_taken"),
    PayloadRefused: (HTTPStatus.UNPROCESSABLE_ENTITY, "payload_refused"),
    UnknownOperation: (HTTPStatus.UNPROCESSABLE_ENTITY, "unknown_operation"),
}
# What no Runtime can cause, whatever door it came through.
OPERATOR_REFUSALS: Final[dict[type[OncefenceError], tuple[HTTPStatus, str]]] = {
    VersionMoved: (HTTPStatus.CONFLICT, "version_moved"),
    ActRefused: (HTTPStatus.CONFLICT, "act_refused"),
}
_REFUSALS: Final = KERNEL_REFUSALS | OPERATOR_REFUSALS
_OF_STATUS: Final = {404: "not_found", 405: "method_not_allowed"}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    incident: str | None = None,
) -> Response:
    """The answer that carries one problem document."""
    document = ProblemDocument(
        type=f"urn:oncefence:problem:{code}",
        title=TITLES[code],
        status=status,
        detail=detail,
        code=code,
        incident=incident,
    )
    return Response(
        document.model_dump_json(exclude_none=True),
        status_code=status,
        media_type=PROBLEM_TYPE,
        headers={"Cache-Control": "no-store"} | (headers or {}),
    )


def no_such_thing() -> RequestRefused:
    """The refusal of whatever does not exist, or does not exist for this caller (C8)."""
    return RequestRefused(
        status=HTTPStatus.NOT_FOUND, code="not_found", detail="there is nothing at this address"
    )


def install(app: FastAPI) -> None:
    """Make `app` answer with problem documents, whatever goes wrong in it."""
    of_the_door = (RequestRefused, RequestValidationError, StoreUnavailable, HTTPException)
    for kind in (*_REFUSALS, *of_the_door):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(UnexpectedErrors)


async def _answer(request: Request, error: Exception) -> Response:
    answer, code = problem_of(error)
    tell = log.warning if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR else log.info
    named = _named(request.scope)
    if isinstance(error, StoreUnavailable):
        named["reason"] = error.reason
    tell("request_refused", code=code, status=int(answer.status_code), **named)
    return answer


def problem_of(error: Exception) -> tuple[Response, str]:
    """The answer to an error that has a handler here, and its code."""
    if isinstance(error, RequestRefused):
        return problem(error.status, error.code, error.detail, headers=error.headers), error.code
    if isinstance(error, StoreUnavailable):
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the database did not answer, so the outcome of this request is unknown; "
            "the same request is safe to repeat",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        ), "store_unavailable"
    if isinstance(error, RequestValidationError):
        # Of the address: bodies are read by the door itself. What was given is not repeated.
        faults = [f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors()[:8]]
        return problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, "query_invalid", "; ".join(faults)
        ), "query_invalid"
    if isinstance(error, HTTPException):
        # Of the router: no such address, or no such method at it.
        code = _OF_STATUS.get(error.status_code, "request_refused")
        detail = {
            "not_found": "there is nothing at this address",
            "method_not_allowed": "this address has other methods; see the header Allow",
        }.get(code, "the request cannot be answered as it stands")
        return problem(error.status_code, code, detail, headers=dict(error.headers or {})), code
    status, code = _REFUSALS[type(error)]  # type: ignore[index]  # registered by these keys
    return problem(status, code, str(error)), code


class UnexpectedErrors:
    """
    The last net: what nobody foresaw is answered without its internals and logged by its place.

    Neither the message nor the values of the error are logged: a driver's message holds the
    parameters of its statement.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_begun = False

        async def watched(message: Message) -> None:
            nonlocal is_begun
            is_begun = is_begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            log.info("caller_left", **_named(scope))
        except Exception as error:  # noqa: BLE001  # logged by type and place, and answered
            incident = uuid4().hex
            # Not `exception`: a traceback ends in the message.
            log.error(  # noqa: TRY400
                "request_failed", incident=incident, **_place(error), **_named(scope)
            )
            if not is_begun:
                answer = problem(
                    HTTPStatus.INTERNAL_SERVER_ERROR,
                    "internal_error",
                    "something failed here, and the log tells what under this incident; "
                    "the outcome of this request is unknown, and the same one is safe to repeat",
                    incident=incident,
                )
                await answer(scope, receive, send)


def _named(scope: Scope) -> dict[str, str]:
    # The template of the route: the address itself holds handoff keys and digests.
    return {
        "method": str(scope["method"]),
        "route": str(getattr(scope.get("route"), "path", "none")),
    }


def _place(error: BaseException) -> dict[str, object]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": type(error).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]],
    }
