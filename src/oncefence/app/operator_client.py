"""
The client of an operator's door, for the command line: documents in, documents out.

Reading is repeated where no answer came. An act is not: what it names may have moved because the
first one was done, and whoever acts should look before asking again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self

from pydantic import ValidationError

from oncefence.app.client import DoorAnswer, DoorLine, DoorUnavailable, checked_bearer, checked_url
from oncefence.app.door_messages import ProblemDocument
from oncefence.domain.errors import Refused, Unknown
from oncefence.domain.redaction import Secret

Document = Mapping[str, Any]
"""One JSON object; Any, because each route has its own and the door has checked it."""

_ROOT: Final = "/v1/operator/"


@dataclass(eq=False)
class OperatorRefused(Refused):
    """The door said no to an operator; `code` is stable."""

    code: str
    detail: str
    status: int

    def __str__(self) -> str:
        return f"{self.detail} ({self.code})"


@dataclass(eq=False)
class ActUnanswered(Unknown):
    """No answer to an act of an operator: it may be done or not."""

    act: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.act}: no answer from the doors ({self.reason}); it may be done or not. "
            "Look at what it was about before you ask again"
        )


class OperatorClient:
    """One operator's way to the doors; open it with `async with`."""

    def __init__(self, base_url: str, token: Secret) -> None:
        """
        Make a client; nothing is sent yet.

        Raises:
            ConfigurationRefused: The URL is no http(s) URL, or the token cannot be one.
        """
        self._base_url = checked_url(base_url, setting="ONCEFENCE_DOORS")
        self._line = DoorLine(
            self._base_url,
            checked_bearer(
                token,
                setting="ONCEFENCE_OPERATOR_TOKEN",
                remedy="Give exactly what `oncefence operator add` printed",
            ),
        )

    def __repr__(self) -> str:
        return f"OperatorClient({self._base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._line.close()

    async def get(self, path: str, query: Mapping[str, str | int | None] | None = None) -> Document:
        """
        The document at `/v1/operator/PATH`; what is None in `query` is left out.

        Raises:
            OperatorRefused: The door refused; the message says what to do.
            DoorUnavailable: No answer.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        answer = await self._line.call(f"read {path}", "GET", _ROOT + path, query=given)
        return _document(f"read {path}", answer)

    async def post(self, path: str, message: Mapping[str, object]) -> Document:
        """
        The answer to an act, asked for once.

        Raises:
            OperatorRefused: The door refused, and nothing was done.
            ActUnanswered: No answer; it may be done or not.
            DoorUnavailable: No door was reached, and nothing was done.
        """
        # ASCII escapes: half of a surrogate pair is then the door's to refuse.
        content = json.dumps(message).encode("ascii")
        try:
            answer = await self._line.call(
                path, "POST", _ROOT + path, content, "application/json", may_repeat=False
            )
            return _document(path, answer)
        except DoorUnavailable as error:
            if not error.was_reached:
                raise
            raise ActUnanswered(act=path, reason=error.reason) from None


def _document(verb: str, answer: DoorAnswer) -> Document:
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        try:
            found = json.loads(answer.content)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
    elif HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        problem = _problem(answer.content)
        if problem is not None:
            raise OperatorRefused(code=problem.code, detail=problem.detail, status=answer.status)
    # A failure inside the door, or something else that listens at this address.
    problem = _problem(answer.content)
    incident = "" if problem is None or problem.incident is None else f", {problem.incident}"
    raise DoorUnavailable(verb=verb, reason=f"status {answer.status}{incident}")


def _problem(content: bytes) -> ProblemDocument | None:
    try:
        return ProblemDocument.model_validate_json(content)
    except ValidationError:
        return None
