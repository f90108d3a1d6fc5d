"""Per-user delivery: a command is done with the account of the person that its payload names."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from oncefence.catalog.errors import CatalogError, PayloadRefused
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_principal_binding import (
    BindingKindTaken,
    add_principal_binding,
)
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.start_attempt import unseal
from tests.support.servers import Database
from tests.support.world import INSTALLATION, PRINCIPAL, UNCOUNTED, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

PEOPLE = "people"
OF_A_PERSON = UNCOUNTED.replace("sensitive = false", 'sensitive = false\nuser = "owner"').replace(
    f'principal = "{PRINCIPAL}"', f'principal = "{PEOPLE}"'
)
FAMILY = "connected.deliver"


def view_of(text: str, folder: pytest.TempPathFactory) -> IntegrationBindingView:
    path = folder.mktemp("bindings") / "example.binding.toml"
    path.write_text(text, encoding="utf-8")
    return compile_view(load_pack("hubspot"), load_binding(path))


@pytest_asyncio.fixture(loop_scope="module")
async def world(store: Database, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Ada and Grace have accounts of their own beside the one of all."""
    made = await World.make(store)
    await publish_view(
        made.engine,
        made.org,
        INSTALLATION,
        view_of(OF_A_PERSON, tmp_path_factory),
        actor="tests",
        activate=True,
    )
    for user, remote_id in (("ada", "501"), ("grace", "502")):
        await add_principal_binding(
            made.engine,
            made.ring,
            made.org,
            name=PEOPLE,
            user=user,
            provider="hubspot",
            base_url="http://127.0.0.1:1",
            is_local=True,
            token=Secret(f"token-of-{user}"),
            actor="tests",
        )
        await adopt_link(
            made.engine,
            made.org,
            binding_name=PEOPLE,
            user=user,
            local_object="lead",
            subject="lead-1",
            remote_object="contact",
            remote_id=remote_id,
            actor="tests",
        )
    yield made


async def test_goes_to_the_account_of_the_person_that_it_names(world: World) -> None:
    """Each to the own record, with the own token, and counted apart (C29, C281)."""
    for user, remote_id in (("ada", "501"), ("grace", "502")):
        accepted = await world.accept_command(also={"owner": user})

        started = await world.start(accepted)
        assert started.remote_id == remote_id
        unsealed = unseal(world.ring, started)
        assert unsealed.token == Secret(f"token-of-{user}")
        assert b"owner" not in unsealed.request.body
        assert (await world.item(accepted.work)).family == FAMILY
        settled = await world.settle(started, Outcome.ACCEPTED)
        assert settled.execution_status == "succeeded"


@pytest.mark.parametrize("owner", [None, "", " ada", 7, "a\nb"])
async def test_a_payload_that_names_nobody_is_refused(world: World, owner: object) -> None:
    """It goes to no account at all, and least of all to the one of all."""
    with pytest.raises(PayloadRefused, match="owner"):
        await world.accept_command(also={"owner": owner})


async def test_a_person_without_an_account_is_named_as_what_is_missing(world: World) -> None:
    """The message says what to make; nothing was accepted."""
    with pytest.raises(NoSuchTarget, match="of that user"):
        await world.accept_command(also={"owner": "mallory"})


async def test_the_person_is_no_field_that_is_written(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What selects the account would otherwise reach the provider by chance."""
    with pytest.raises(CatalogError, match="another key"):
        view_of(OF_A_PERSON.replace('user = "owner"', 'user = "title"'), tmp_path_factory)


async def test_one_name_is_the_organisations_or_its_peoples(world: World) -> None:
    """Or an operation could not say whose account it means (C281)."""
    with pytest.raises(BindingKindTaken, match="another name"):
        await add_principal_binding(
            world.engine,
            world.ring,
            world.org,
            name=PEOPLE,
            provider="hubspot",
            base_url="http://127.0.0.1:1",
            is_local=True,
            token=Secret("token-of-all"),
            actor="tests",
        )
