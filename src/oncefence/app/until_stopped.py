"""A stack that runs until it is told to stop, and the one screen that says what runs where."""

import shlex
import time
from typing import Final

from oncefence.app import interruptible
from oncefence.app.cli.screen import say, show_record
from oncefence.app.examples import BINDING, CHANGES, example
from oncefence.app.handoff_file import HandoffLine, read_handoff_file
from oncefence.app.local_operator import local_operator
from oncefence.app.local_world import contacts_of, make_contacts, make_links, make_world
from oncefence.app.stack import Stack
from oncefence.domain.errors import ConfigurationRefused

_POLL_SECONDS: Final = 0.3


def run_until_stopped(stack: Stack) -> None:
    """
    Run everything, and stop it in good order on Ctrl-C.

    Raises:
        ConfigurationRefused: Something does not start, or a process ended by itself.
    """
    try:
        with stack:
            stack.launch_worker()
            world = make_world(stack, example(BINDING))
            subjects = [
                line.subject
                for line in read_handoff_file(example(CHANGES))
                if isinstance(line, HandoffLine)
            ]
            contacts = contacts_of(subjects)
            interruptible.run(make_contacts(stack, contacts))
            for operation in world.view.operations.values():
                make_links(stack, world, operation, contacts)
            stack.await_worker()
            operator = interruptible.run(
                local_operator(stack.folder, stack.database_url, world.org)
            )
            stack.write_environment_file(world.credential, operator)
            _print_screen(stack, world.org, contacts, has_operator=operator is not None)
            _watch(stack)
    except KeyboardInterrupt:
        say("everything is stopped; the data stays, and the next start goes on with it")


def _print_screen(stack: Stack, org: str, contacts: dict[str, str], *, has_operator: bool) -> None:
    subjects = list(contacts)
    given = f"the credential of org {org}"
    if has_operator:
        given += f" and the token of operator {org}"
    show_record(
        "oncefence is up",
        {
            "temporal_page": stack.temporal_ui or "of your own Temporal",
            "temporal": stack.temporal_address,
            "doors": stack.doors_url,
            "provider": f"{stack.simulator.url} (simulated)",
            "provider_admin": f"{stack.simulator.admin_url} (faults, contacts, state, ledger)",
            "postgresql": stack.postgres_place,
            "data_and_logs": stack.folder,
            "settings": f"{stack.environment_file} (with {given})",
            "time": (
                "as it is"
                if stack.state.time_scale == 1
                else f"at scale {stack.state.time_scale:g}; no send deadline is scaled"
            ),
            "leads": f"{subjects[0]} to {subjects[-1]} are linked to contacts",
        },
    )
    say("In another terminal:")
    say(f"    . {shlex.quote(str(stack.environment_file))}")
    say(f"    oncefence submit {shlex.quote(str(example(CHANGES)))}")
    say("    oncefence audit")
    say("Ctrl-C stops everything.")


def _watch(stack: Stack) -> None:
    """Return never: a process that ends by itself is told, and Ctrl-C comes from outside."""
    while True:
        ended = stack.ended()
        if ended is not None:
            raise ConfigurationRefused(
                setting="oncefence up",
                reason=ended,
                remedy=f"The logs are in {stack.folder}; the next start goes on with its data",
            )
        time.sleep(_POLL_SECONDS)
