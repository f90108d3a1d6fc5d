"""Reading what comes through the HTTP door: bounded, strict, and explained where it is refused."""

from http import HTTPStatus
from typing import Final, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from oncefence.app.problems import RequestRefused, no_such_thing
from oncefence.catalog import strict_json
from oncefence.domain.handoff import is_payload_digest
from oncefence.domain.ids import ExecutionId, PayloadDigest

JSON_BYTES_MAX: Final = 65_536
JSON_DEPTH_MAX: Final = 16
_JSON: Final = "application/json"

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, bytes_max: int) -> bytes:
    """
    The bytes of the body; never more than `bytes_max` and a chunk are held.

    Raises:
        RequestRefused: There are more.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
    return bytes(body)


async def read_message(request: Request, model: type[M]) -> M:
    """
    The body as a `model`.

    Raises:
        RequestRefused: Another media type, too long, not strict JSON, or not of this form.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _JSON:
        raise RequestRefused(
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            code="media_type_unsupported",
            detail=f"send the body as {_JSON}",
        )
    data = await read_body(request, JSON_BYTES_MAX)
    try:
        value = strict_json.parse(data, depth_max=JSON_DEPTH_MAX, exact=True)
    except strict_json.JsonRefused as error:
        raise RequestRefused(
            status=HTTPStatus.BAD_REQUEST,
            code="json_refused",
            detail=f"{'the body' if error.where == '$' else error.where}: {error.reason}",
        ) from None
    if not isinstance(value, dict):
        raise _invalid("the body must be a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid("; ".join(_faults(error, model))) from None


def read_digest(text: str) -> PayloadDigest:
    """
    The payload digest that `text` is.

    Raises:
        RequestRefused: It is not in canonical form.
    """
    if not is_payload_digest(text):
        raise RequestRefused(
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            code="payload_digest_malformed",
            detail="the payload digest must be the SHA-256 of the payload's exact bytes "
            "as 64 lower-case hex digits",
        )
    return PayloadDigest(text)


def read_execution_id(text: str) -> ExecutionId:
    """
    The execution id that `text` is.

    Raises:
        RequestRefused: It is none; answered as one that does not exist.
    """
    try:
        execution = UUID(text)
    except ValueError:
        raise no_such_thing() from None
    if str(execution) != text:
        raise no_such_thing()
    return ExecutionId(execution)


def _too_large(bytes_max: int) -> RequestRefused:
    return RequestRefused(
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        code="body_too_large",
        detail=f"the body may have at most {bytes_max} bytes",
    )


def _invalid(detail: str) -> RequestRefused:
    return RequestRefused(
        status=HTTPStatus.UNPROCESSABLE_ENTITY, code="body_invalid", detail=detail
    )


def _faults(error: ValidationError, model: type[BaseModel]) -> list[str]:
    found = []
    for fault in error.errors(include_input=False, include_url=False):
        member = strict_json.join("", str(fault["loc"][0]))
        match fault["type"]:
            case "missing":
                reason = "is missing"
            case "extra_forbidden":
                reason = f"is not known here; there are {', '.join(model.model_fields)}"
            case "string_type":
                reason = "must be text"
            case "string_too_short":
                reason = "must not be empty"
            case "string_too_long":
                reason = f"may have at most {fault['ctx']['max_length']} characters"
            case _:
                reason = fault["msg"]
        found.append(f"{member} {reason}")
    return found[:8]
