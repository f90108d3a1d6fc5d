"""Reading pack and binding files; every error names file, key and reason (C562)."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from json import dumps
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from oncefence.catalog.bindings import BINDING_FORMAT, IntegrationBinding
from oncefence.catalog.canonical import Model
from oncefence.catalog.checks import binding_problems, pack_problems
from oncefence.catalog.definitions import PACK_FORMAT, ProviderPack
from oncefence.catalog.errors import CatalogError, Problem
from oncefence.catalog.explain import problems_of

FILE_BYTES_MAX = 1_048_576
_SHIPPED = "oncefence.catalog"

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What `check` found in the files it was given."""

    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    checked: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether everything may be published; warnings do not stand in the way."""
        return not self.errors


def load_pack(path_or_name: str | Path, folders: Sequence[str | Path] = ()) -> ProviderPack:
    """
    The pack in a file, or of a name: from the first of `folders` that has it, else as shipped.

    Raises:
        CatalogError: It is not there or not valid; every problem is listed.
    """
    pack, _ = _checked_pack(_find_pack(path_or_name, folders))
    return pack


def load_binding(path: str | Path) -> IntegrationBinding:
    """
    The binding in a file. Whether it fits its pack is for `compile_view` to say.

    Raises:
        CatalogError: It is not there or not valid; every problem is listed.
    """
    source = Path(path)
    return _binding(str(source), _table(source))


def shipped_packs() -> tuple[str, ...]:
    """The names of the packs that come with oncefence."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in _entries(_shipped_folder())))


def check(paths: Iterable[str | Path], folders: Sequence[str | Path] = ()) -> CheckReport:
    """
    Everything wrong or risky in the given files and folders, without stopping at the first.

    A binding is held against its pack: one among `paths`, else one found as `load_pack` does.
    """
    errors: list[Problem] = []
    warnings: list[Problem] = []
    packs: dict[str, ProviderPack] = {}
    bindings: list[IntegrationBinding] = []
    checked: list[str] = []
    for path in paths:
        for source in _files(Path(path), errors):
            checked.append(str(source))
            try:
                table = _table(source)
                if _format(str(source), table) == BINDING_FORMAT:
                    bindings.append(_binding(str(source), table))
                    continue
                pack, risks = _checked_pack(source)
            except CatalogError as error:
                errors += error.problems
                continue
            warnings += risks
            if pack.name in packs:
                reason = f"{packs[pack.name].source} is a pack of this name too"
                errors.append(Problem(file=str(source), key="name", reason=reason))
            packs[pack.name] = pack
    for binding in bindings:
        try:
            pack = packs.get(binding.pack) or _pack_of(binding, folders)
        except CatalogError as error:
            errors += error.problems
            continue
        misfits, risks = binding_problems(pack, binding)
        errors += misfits
        warnings += risks
    return CheckReport(errors=tuple(errors), warnings=tuple(warnings), checked=tuple(checked))


def _pack_of(binding: IntegrationBinding, folders: Sequence[str | Path]) -> ProviderPack:
    try:
        return load_pack(binding.pack, folders)
    except CatalogError as error:
        problem = Problem(file=binding.source, key="pack", reason=error.problems[0].reason)
        raise CatalogError([problem, *error.problems[1:]]) from None


def _files(path: Path, errors: list[Problem]) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.toml"))
    if not found:
        errors.append(Problem(file=str(path), key="", reason="the folder holds no .toml file"))
    return found


def _shipped_folder() -> Traversable:
    return files(_SHIPPED) / "packs"


def _entries(folder: Traversable) -> list[Traversable]:
    return [entry for entry in folder.iterdir() if entry.name.endswith(".toml")]


def _find_pack(path_or_name: str | Path, folders: Sequence[str | Path]) -> Traversable:
    text = str(path_or_name)
    if isinstance(path_or_name, Path) or "/" in text or text.endswith(".toml"):
        return Path(path_or_name)
    for folder in folders:
        candidate = Path(folder) / f"{text}.toml"
        if candidate.is_file():
            return candidate
    for entry in _entries(_shipped_folder()):
        if entry.name == f"{text}.toml":
            return entry
    places = ", ".join([*map(str, folders), f"the shipped ones ({', '.join(shipped_packs())})"])
    raise CatalogError(
        [
            Problem(
                file=f"{text}.toml",
                key="",
                reason=f"no pack {text!r} in {places}; a file is NAME.toml",
            )
        ]
    )


def _checked_pack(source: Traversable) -> tuple[ProviderPack, list[Problem]]:
    name = str(source)
    table = _table(source)
    if (form := _format(name, table)) != PACK_FORMAT:
        raise _wrong(name, "format", f"is {form}; a pack has {PACK_FORMAT}")
    pack = _validated(ProviderPack, name, table)
    errors, warnings = pack_problems(pack)
    if f"{pack.name}.toml" != source.name:
        reason = f"is {pack.name!r}, so the file must be called {pack.name}.toml"
        errors.insert(0, Problem(file=name, key="name", reason=reason))
    if errors:
        raise CatalogError(errors)
    return pack, warnings


def _binding(name: str, table: dict[str, object]) -> IntegrationBinding:
    if (form := _format(name, table)) != BINDING_FORMAT:
        raise _wrong(name, "format", f"is {form}; a binding has {BINDING_FORMAT}")
    return _validated(IntegrationBinding, name, table)


def _format(name: str, table: dict[str, object]) -> str:
    known = f"this version reads {PACK_FORMAT} and {BINDING_FORMAT}"
    form = table.get("format")
    if form is None:
        raise _wrong(name, "format", f"is missing; {known}")
    if form not in (PACK_FORMAT, BINDING_FORMAT):
        raise _wrong(name, "format", f"is unknown; {known}")
    return str(form)


def _table(source: Traversable) -> dict[str, object]:
    name = str(source)
    try:
        with source.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except IsADirectoryError:
        raise _wrong(name, "", "is a folder; name one file in it") from None
    except OSError as error:
        raise _wrong(name, "", f"cannot be read ({error.strerror})") from None
    if len(data) > FILE_BYTES_MAX:
        raise _wrong(name, "", f"has more than {FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _wrong(name, "", f"is not UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise _wrong(name, "", f"is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise _wrong(name, "", "holds a number that is too long, or is nested too deeply") from None


def _validated(model: type[M], name: str, table: dict[str, object]) -> M:
    try:
        # By way of JSON: the strict mode then takes arrays for tuples and text for enums, the
        # same as when a stored view is read back.
        return model.model_validate_json(dumps(table, allow_nan=False), context={"source": name})
    except ValidationError as error:
        raise CatalogError(problems_of(error, model, name)) from None
    except RecursionError:
        raise _wrong(name, "", "is nested too deeply") from None
    except (TypeError, ValueError):
        raise _wrong(
            name,
            "",
            "holds a date, a time, nan, inf or a number that is too long; write it as text",
        ) from None


def _wrong(name: str, at: str, reason: str) -> CatalogError:
    return CatalogError([Problem(file=name, key=at, reason=reason)])
