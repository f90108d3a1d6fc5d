"""Lanes as data: a pack says what must be in order, and a binding may add to it."""

from pathlib import Path

import pytest

from oncefence.catalog.errors import CatalogError
from oncefence.catalog.lanes import LaneChoice, Lanes
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.view import compile_view

ROOT = Path(__file__).parents[2]
PACK = ROOT / "src/oncefence/catalog/packs/hubspot.toml"
BINDING = ROOT / "docs/examples/lead-title.binding.toml"
PUSH = "lead.title.push"
WRITE = 'operations."contact.update"'
OF_BINDING = 'source = "subject"\ntarget = "link"'


def pack_file(folder: Path, lanes: str, *, has_lookup: bool = True) -> Path:
    """The shipped pack with these lanes in its operation."""
    text = PACK.read_text(encoding="utf-8")
    text = text.replace('replay = "none"\n', f'replay = "none"\n\n[{WRITE}.lanes]\n{lanes}\n', 1)
    if not has_lookup:
        text = text[: text.index(f"[{WRITE}.lookup]")]
    path = folder / "hubspot.toml"
    path.write_text(text, encoding="utf-8")
    return path


def binding_file(folder: Path, lanes: str) -> Path:
    """The example binding with these lanes in its operation."""
    text = BINDING.read_text(encoding="utf-8")
    assert OF_BINDING in text
    path = folder / "lead.binding.toml"
    path.write_text(text.replace(OF_BINDING, lanes, 1), encoding="utf-8")
    return path


def bound(folder: Path, pack: str, binding: str) -> BoundOperation:
    """What the binding makes of the operation."""
    shown = pack_file(folder, pack, has_lookup='target = "none"' not in pack)
    view = compile_view(load_pack(shown), load_binding(binding_file(folder, binding)))
    return view.operation(PUSH)


class TestLanes:
    @pytest.mark.parametrize(
        ("pack", "binding", "lanes"),
        [
            ("", "", ("subject", "link")),
            ('source = "none"', "", ("none", "link")),
            ('source = "none"\ntarget = "none"', "", ("none", "none")),
            ('source = "none"\ntarget = "none"', 'source = "subject"', ("subject", "none")),
            ('source = "none"\ntarget = "none"', 'target = "link"', ("none", "link")),
            ('source = "none"', 'source = "none"\ntarget = "link"', ("none", "link")),
        ],
    )
    def test_are_the_packs_and_what_the_binding_adds(
        self, tmp_path: Path, pack: str, binding: str, lanes: tuple[str, str]
    ) -> None:
        """Unless anybody says otherwise, a dispatch stands in two lanes (C226)."""
        operation = bound(tmp_path, pack, binding)

        assert (operation.lanes.source, operation.lanes.target) == lanes

    @pytest.mark.parametrize("part", ["source", "target"])
    def test_that_the_pack_needs_are_no_bindings_to_drop(self, tmp_path: Path, part: str) -> None:
        """Whoever wrote the pack knows the provider; a tenant's haste does not."""
        with pytest.raises(CatalogError) as refused:
            bound(tmp_path, "", f'{part} = "none"')

        (problem,) = refused.value.problems
        assert problem.key == f'operations."{PUSH}".lanes.{part}'
        assert "must stay" in problem.reason

    @pytest.mark.parametrize("part", ["source", "target"])
    @pytest.mark.parametrize("wide", ["tenant", "org", "installation", "binding", "all"])
    def test_of_a_whole_tenant_are_refused_in_a_pack(
        self, tmp_path: Path, part: str, wide: str
    ) -> None:
        """One line for everything of a tenant would be as slow as its slowest record (C230)."""
        with pytest.raises(CatalogError, match="tenant-wide lane") as refused:
            load_pack(pack_file(tmp_path, f'{part} = "{wide}"'))

        assert refused.value.problems[0].key == f"{WRITE}.lanes.{part}"

    def test_of_the_target_are_needed_where_there_is_a_lookup(self, tmp_path: Path) -> None:
        """What another command wrote meanwhile would be read as this one's success."""
        with pytest.raises(CatalogError) as refused:
            load_pack(pack_file(tmp_path, 'target = "none"'))

        (problem,) = refused.value.problems
        assert problem.key == f"{WRITE}.lanes.target"
        assert "lookup" in problem.reason

    def test_that_nobody_names_are_both(self) -> None:
        """Order is what nobody has to think of."""
        assert LaneChoice().upon(Lanes()) == Lanes(source="subject", target="link")
