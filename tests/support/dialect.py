"""How the tests' providers are spoken to: a pack and a binding, offered in both forms."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import IntegrationBindingView, compile_view
from tests.providers.simulated import TOKEN as SIMULATOR_TOKEN
from tests.providers.simulated import Simulated
from tests.support.world import UNCOUNTED

DATA = Path(__file__).parents[1] / "data"


class Form(StrEnum):
    """How the attempt runs: as a local activity, or as a regular one for long deadlines."""

    LOCAL = "local"
    REGULAR = "regular"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A pack and a binding of one operation over it, which the tests offer in both forms."""

    pack_name: str
    pack_text: str
    binding_text: str
    token: str

    @property
    def pack_operation(self) -> str:
        return self._named(self.pack_text)

    @property
    def operation(self) -> str:
        return self._named(self.binding_text)

    def operation_of(self, form: Form) -> str:
        """The local operation that runs in `form`."""
        return self.operation if form is Form.LOCAL else f"{self.operation}.long"

    def view(
        self, *, local_ms: int | None = None, regular_ms: int = 9_000, is_sensitive: bool = False
    ) -> IntegrationBindingView:
        """The view with the operation twice; `local_ms` is the pack's own unless given."""
        short, long = self._pair(self.pack_text, self.pack_operation)
        if local_ms is not None:
            short = _with_deadline(short, local_ms)
        pack = short + _with_deadline(long, regular_ms)
        short, long = self._pair(self.binding_text, self.operation)
        binding = short + long.replace(
            f'operation = "{self.pack_operation}"', f'operation = "{self.pack_operation}.long"'
        )
        if is_sensitive:
            binding = binding.replace("sensitive = false", "sensitive = true")
        with tempfile.TemporaryDirectory() as folder:
            pack_path = Path(folder) / f"{self.pack_name}.toml"
            pack_path.write_text(pack, encoding="utf-8")
            binding_path = Path(folder) / "tests.binding.toml"
            binding_path.write_text(binding, encoding="utf-8")
            return compile_view(load_pack(pack_path), load_binding(binding_path))

    @staticmethod
    def _named(text: str) -> str:
        return text.partition('[operations."')[2].partition('"]')[0]

    @staticmethod
    def _pair(text: str, operation: str) -> tuple[str, str]:
        """The text, and its one operation again under another name."""
        section = text[text.index(f'[operations."{operation}"]') :]
        # Other tables may follow the operation's own.
        for table in re.finditer(r"^\[", section, re.MULTILINE):
            if not section.startswith(f'[operations."{operation}"', table.start()):
                section = section[: table.start()]
                break
        again = section.replace(f'[operations."{operation}"', f'[operations."{operation}.long"')
        return text + "\n", again


def _with_deadline(text: str, milliseconds: int) -> str:
    before, name, after = text.partition("total_deadline_ms = ")
    assert name, "the pack names the deadline of its operation"
    return before + name + str(milliseconds) + "\n" + after.partition("\n")[2]


def shipped_dialect() -> Dialect:
    """The pack that ships with its example binding, as the simulator speaks it."""
    return Dialect(
        pack_name="hubspot",
        pack_text=(files("oncefence.catalog") / "packs" / "hubspot.toml").read_text("utf-8"),
        binding_text=UNCOUNTED,
        token=SIMULATOR_TOKEN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where a provider listens, how it is spoken to, and how a record of it comes to be."""

    base_url: str
    dialect: Dialect
    make_record: Callable[[], str]


def simulated_provider(simulator: Simulated) -> Provider:
    """The simulator as a provider of the shipped dialect."""
    return Provider(
        base_url=f"http://127.0.0.1:{simulator.port}",
        dialect=shipped_dialect(),
        make_record=simulator.contact,
    )
