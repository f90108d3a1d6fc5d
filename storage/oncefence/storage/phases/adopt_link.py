"""Adopting: an existing remote record is linked to a local subject."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import NoSuchTarget, Refused, SubjectTaken
from oncefence.domain.ids import LinkId, OrgId, derived_id, named_id
from oncefence.domain.remote_link import LinkState
from oncefence.storage import audit, principal_bindings, remote_links
from oncefence.storage.engine import constraint_name, run_phase

# Whose records are meant now; of a binding whose last account is gone, those of that one.
IDENTITY = text(
    "SELECT identity_ordinal FROM oncefence.binding_generations"
    " WHERE org_id = :org AND binding_id = :binding ORDER BY ordinal DESC LIMIT 1"
)
PRESENT = text(
    "SELECT link_id, remote_object, remote_id, state FROM oncefence.remote_links"
    " WHERE org_id = :org AND binding_id = :binding AND local_object = :local_object"
    " AND subject = :subject AND state <> 'retired' AND identity_ordinal = :identity"
)
# Links of this very pair that were retired or are of another account: each has its id for good.
RETIRED = text(
    "SELECT count(*) FROM oncefence.remote_links"
    " WHERE org_id = :org AND binding_id = :binding AND local_object = :local_object"
    " AND subject = :subject AND remote_object = :remote_object AND remote_id = :remote_id"
)


@dataclass(eq=False)
class LinkTaken(Refused):
    """The subject, or the remote record, is linked otherwise; identities are never guessed."""

    which: str

    def __str__(self) -> str:
        return f"the {self.which} has a link already; retire that one first"


async def adopt_link(
    engine: AsyncEngine,
    org: OrgId,
    *,
    binding_name: str,
    user: str | None = None,
    local_object: str,
    subject: str,
    remote_object: str,
    remote_id: str,
    actor: str,
) -> LinkId:
    """
    Link the subject to the remote record; the same link again is the same one.

    It is a record in the account of `user`, or in that of the organisation where there is none.

    Raises:
        NoSuchTarget: The org, or that user, has no principal binding of that name.
        LinkTaken: Subject or remote record is linked to something else.
        SubjectTaken: A record of it is being created, and what becomes of that is not known yet.
    """

    async def transaction() -> LinkId:
        async with engine.begin() as connection:
            found = await principal_bindings.find(connection, org, binding_name, user)
            if found is None:
                raise NoSuchTarget(
                    kind="principal binding" + ("" if user is None else " of that user"),
                    name=binding_name,
                    remedy="make it with `oncefence binding connect` or `oncefence binding add`",
                )
            binding = found.binding_id
            place = {
                "org": org,
                "binding": binding,
                "local_object": local_object,
                "subject": subject,
            }
            identity = (await connection.execute(IDENTITY, place)).scalar_one()
            present = (
                await connection.execute(PRESENT, place | {"identity": identity})
            ).one_or_none()
            if present is not None:
                if present.state == LinkState.CREATING:
                    raise SubjectTaken(
                        local_object=local_object, subject=subject, is_being_created=True
                    )
                if (present.remote_object, present.remote_id) != (remote_object, remote_id):
                    raise LinkTaken(which="local subject")
                return LinkId(present.link_id)
            pair = {"remote_object": remote_object, "remote_id": remote_id}
            retired = (await connection.execute(RETIRED, place | pair)).scalar_one()
            link = LinkId(
                derived_id(
                    named_id("link", org, binding, local_object, subject),
                    remote_object,
                    remote_id,
                    *([retired + 1] if retired else []),
                )
            )
            await remote_links.add(
                connection,
                {
                    "org_id": org,
                    "link_id": link,
                    "binding_id": binding,
                    "local_object": local_object,
                    "subject": subject,
                    "remote_object": remote_object,
                    "remote_id": remote_id,
                    "state": LinkState.ACTIVE.value,
                    "identity_ordinal": identity,
                },
            )
            await audit.add(
                connection,
                org,
                actor=actor,
                act="link.adopt",
                subject_kind="remote_link",
                subject_id=str(link),
            )
            return link

    try:
        return await run_phase("adopt_link", transaction)
    except Exception as error:
        refused_by = constraint_name(error)
        if refused_by == "remote_links_pkey":
            # The same link was made at the same moment, and is there now.
            return await run_phase("adopt_link", transaction)
        taken = {
            "one_live_link_per_subject": "local subject",
            "one_live_link_per_remote_record": "remote record",
        }.get(refused_by or "")
        if taken is not None:
            raise LinkTaken(which=taken) from None
        raise
