"""
Every key of a pack and of a binding, as the models have it: type, bounds, default.

    python -m tests.golden.pack_keys

writes it into `docs/packs.md`. A test holds the page to the models.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from oncefence.catalog.bindings import IntegrationBinding
from oncefence.catalog.definitions import ProviderPack
from oncefence.catalog.tables import PackTables

PAGE: Final = Path(__file__).parents[2] / "docs" / "packs.md"
BEGIN: Final = "<!-- every key: python -m tests.golden.pack_keys -->\n"
END: Final = "<!-- the end of every key -->\n"

Schema = Mapping[str, Any]
Row = tuple[str, str, str]

KINDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One pass through the models of a file; a table that occurs again is named only."""

    models: Mapping[str, Schema]
    seen: dict[str, str] = field(default_factory=dict)

    def rows(self, at: str, table: Schema) -> Iterator[Row]:
        """The keys of a table, each followed by those within it."""
        # What stands beside the operations comes after them, as it does on the page.
        keys = sorted(table["properties"], key=PackTables.model_fields.__contains__)
        for name in keys if not at else table["properties"]:
            schema = table["properties"][name]
            is_needed = name in table.get("required", ())
            default = "required" if is_needed else shown_default(schema)
            yield from self.row(f"{at}.{name}" if at else name, schema, default)

    def row(self, key: str, schema: Schema, default: str, of: str = "") -> Iterator[Row]:
        """One key; `of` says what it is a list or a map of."""
        schema = first_of(schema)
        model = str(schema.get("$ref", "")).rsplit("/", 1)[-1]
        named = schema.get("patternProperties") or {"": schema.get("additionalProperties")}
        value = next(iter(named.values()))
        if schema.get("type") == "array":
            inner = first_of(schema.get("items", {}))
            is_table = "$ref" in inner and "enum" not in self.models[inner["$ref"].split("/")[-1]]
            yield from self.row(f"{key}[]" if is_table else key, inner, default, of="list of ")
        elif isinstance(value, dict):
            yield from self.row(f"{key}.NAME", value, default)
        elif not model or "enum" in self.models[model]:
            yield key, of + kind_of(self.models.get(model, schema)), default
        elif model in self.seen:
            yield key, f"{of}table like `{self.seen[model]}`", default
        else:
            self.seen[model] = key
            yield key, f"{of}table", default
            yield from self.rows(key, self.models[model])


def first_of(schema: Schema) -> Schema:
    """The schema without the null that says that a key may be left out."""
    for part in schema.get("anyOf", ()):
        if part.get("type") != "null":
            return part  # type: ignore[no-any-return]  # JSON
    return schema


def kind_of(schema: Schema) -> str:
    """What a value is, in words."""
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    kind = KINDS.get(schema.get("type", ""), "table or value, as said above")
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None:
        kind += f" from {least}" + ("" if most is None else f" to {most}")
    return kind


def shown_default(schema: Schema) -> str:
    """What a key is where it is left out."""
    value = schema.get("default")
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value) or "none"
    if isinstance(value, dict) and value:
        return "the defaults of its keys"
    if value is None or value in ({}, ""):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def page() -> str:
    """The text between the two marks."""
    text = ""
    for title, model in (("Of a pack", ProviderPack), ("Of a binding", IntegrationBinding)):
        whole = model.model_json_schema()
        walk = Walk(models=whole.get("$defs", {}))
        text += f"\n### {title}\n\n| key | type | if left out |\n|---|---|---|\n"
        text += "".join(
            f"| `{k}` | {kind} | {default} |\n" for k, kind, default in walk.rows("", whole)
        )
    return text + "\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + page() + END + after, encoding="utf-8")
