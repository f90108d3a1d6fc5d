"""How the routes of the HTTP door answer, and how they say so in its description."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.responses import Response

from oncefence.app.door_messages import ProblemDocument
from oncefence.app.problems import PROBLEM_TYPE

# The reason of each status is told by its `code`; these are for whoever reads the description.
_PROBLEMS: Final = {
    400: "the body is not strict JSON",
    401: "no credential, or one that is nobody's",
    403: "outside of what the credential or the operator's token is for, whether it exists or not",
    404: "nothing at this address for this caller",
    409: "it stands for something else, moved on, or cannot be done as it stands",
    413: "the body is too large",
    415: "the body is of another media type",
    422: "understood and refused; nothing was written",
    503: "the database does not answer; the outcome is unknown",
}
_PROBLEM_SCHEMA: Final = ProblemDocument.model_json_schema()


def answers(*statuses: int, **given: type[BaseModel] | Any) -> dict[int | str, dict[str, Any]]:
    """What a route answers: `given` as s200=..., problems by their status."""
    found: dict[int | str, dict[str, Any]] = {
        int(name[1:]): {"model": model, "description": HTTPStatus(int(name[1:])).phrase}
        for name, model in given.items()
    }
    content = {PROBLEM_TYPE: {"schema": _PROBLEM_SCHEMA}}
    for status in statuses:
        found[status] = {"description": _PROBLEMS[status], "content": content}
    found["default"] = {"description": "anything else that went wrong", "content": content}
    return found


def takes(media_type: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a route takes as its body, for `openapi_extra`."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def says(
    message: BaseModel, status: int = HTTPStatus.OK, background: BackgroundTask | None = None
) -> Response:
    """The answer that carries `message`; nobody keeps it."""
    return Response(
        message.model_dump_json(),
        status_code=status,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
        background=background,
    )
