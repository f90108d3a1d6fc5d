"""Turning a validation error into keys as TOML spells them and reasons that say what to do."""

from difflib import get_close_matches
from re import findall
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from oncefence.catalog.errors import Problem
from oncefence.catalog.findings import key


def problems_of(error: ValidationError, model: type[BaseModel], file: str) -> list[Problem]:
    """One problem for each thing that pydantic found; no input value is repeated."""
    return [
        Problem(file=file, key=_key(found["loc"]), reason=_reason(found, model))
        for found in error.errors(include_url=False)
    ]


def _key(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if part == "[key]":
            continue
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{key(part)}"
    return text


def _reason(found: ErrorDetails, model: type[BaseModel]) -> str:
    if found["type"] == "missing":
        return "is required and missing"
    if found["type"] == "extra_forbidden":
        known = sorted(_keys_at(found["loc"][:-1], model))
        near = get_close_matches(str(found["loc"][-1]), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return f"unknown key; {hint}"
    reason = found["msg"].removeprefix("Value error, ")
    if found["type"] in ("literal_error", "enum"):
        reason += _nearest(found)
    subject = "the name " if found["loc"][-1:] == ("[key]",) else ""
    return subject + reason.replace("Input should", "should").replace("String should", "should")


def _nearest(found: ErrorDetails) -> str:
    """The choice that was probably meant. What was given is compared and not repeated."""
    choices = findall(r"'([^']+)'", found.get("ctx", {}).get("expected", ""))
    near = get_close_matches(str(found["input"]), choices, n=1)
    return f"; did you mean {near[0]!r}?" if near and len(choices) > 1 else ""


def _keys_at(location: tuple[int | str, ...], model: type[BaseModel]) -> set[str]:
    """The keys that the table at `location` may have."""
    here: object = model
    for part in location:
        if isinstance(part, int):
            # The members of a list have the keys of the model that the list is of.
            continue
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            here = field.annotation if field else None
        else:
            here = _model_in(here)
        inner = _model_in(here)
        # A table of tables keeps its annotation until the next part has named the member.
        if inner is not None and not _is_map(here):
            here = inner
    found = _model_in(here)
    return set(found.model_fields) if found else set()


def _is_map(annotation: object) -> bool:
    return len(get_args(annotation)) == 2 and _model_in(get_args(annotation)[0]) is None


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (found := _model_in(argument)) is not None:
            return found
    return None
