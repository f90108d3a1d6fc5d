"""
A small world on a stack: a Runtime, an account at the simulated provider, a binding, and links.

Made through the verbs of the program (C583), as anybody would make it, and found again later.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncefence.app.stack import Stack
from oncefence.app.stack_state import write_privately
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.view import IntegrationBindingView, compile_view

INSTALLATION: Final = "crm"
CAPABILITY: Final = "outbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWorld:
    """What was made: who hands work over, and by which view it is judged."""

    org: str
    credential: str = field(repr=False)
    view: IntegrationBindingView


def make_world(stack: Stack, binding_file: Path) -> LocalWorld:
    """
    The world of this folder, made where there is none.

    One whose making was interrupted is left as it is, and another org begins anew: so a start
    never has to guess how far the last one came.
    """
    binding_file = _uncounted(stack, binding_file)
    binding = load_binding(binding_file)
    view = compile_view(load_pack(binding.pack), binding)
    made = stack.folder / "world.json"
    if made.exists():
        known = json.loads(made.read_text())
        _publish(stack, binding_file, known["org"])
        return LocalWorld(org=known["org"], credential=known["credential"], view=view)

    # A database of one's own may serve several folders, and none may take the other's work.
    org = f"local-{secrets.token_hex(3)}"
    registered = json.loads(
        stack.run_verb(
            *("runtime", "register", "--org", org, "--installation", INSTALLATION),
            *("--capability", CAPABILITY, "--json"),
        )
    )
    stack.run_verb(
        *("binding", "add", "--org", org, "--name", view.principal),
        *("--provider", view.pack, "--token-file", str(stack.simulator.token_file)),
        *("--base-url", stack.simulator.url, "--local"),
    )
    _publish(stack, binding_file, org)
    world = LocalWorld(org=org, credential=registered["credential"], view=view)
    write_privately(made, json.dumps({"org": org, "credential": world.credential}) + "\n")
    return world


def _uncounted(stack: Stack, binding_file: Path) -> Path:
    """The binding for an account at the simulated provider, which counts nothing."""
    pack = load_pack(load_binding(binding_file).pack)
    limits = "".join(f"{name} = false\n" for name in pack.quota)
    copy = stack.folder / binding_file.name
    copy.write_text(f"{binding_file.read_text('utf-8')}\n[quota]\n{limits}", encoding="utf-8")
    return copy


def _publish(stack: Stack, binding_file: Path, org: str) -> None:
    # The same content again publishes nothing; a changed file is what the world is to use now.
    stack.run_verb(
        *("catalog", "publish", str(binding_file), "--org", org, "--installation", INSTALLATION),
        "--activate",
    )


def contacts_of(subjects: Sequence[str]) -> dict[str, str]:
    """The remote id of each distinct subject: always the same, whatever else is in a file."""
    return {subject: _contact_of(subject) for subject in subjects}


def _contact_of(subject: str) -> str:
    # Twelve digits: long enough that no two subjects of any file meet, short enough to read.
    digest = hashlib.sha256(subject.encode()).digest()
    return str(10**11 + int.from_bytes(digest[:8]) % (9 * 10**11))


async def make_contacts(stack: Stack, contacts: Mapping[str, str]) -> None:
    """Have the simulated provider know a contact for each subject."""
    admin = stack.simulator.admin
    for subject, contact in contacts.items():
        await admin.add_contact(contact, {"lastname": subject, "jobtitle": "as it was before"})


def make_links(
    stack: Stack, world: LocalWorld, operation: BoundOperation, contacts: Mapping[str, str]
) -> None:
    """Link each subject to its contact; a link that is there stays."""
    if not contacts:
        return
    links = stack.folder / "links.jsonl"
    lines = (
        json.dumps(
            {
                "object": operation.local_object,
                "subject": subject,
                "remote_object": operation.remote_object,
                "remote_id": contact,
            }
        )
        for subject, contact in contacts.items()
    )
    links.write_text("\n".join(lines) + "\n", encoding="utf-8")
    stack.run_verb(
        *("link", "adopt", "--org", world.org, "--binding", world.view.principal),
        *("--file", str(links)),
    )
