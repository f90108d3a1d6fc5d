"""The messages about the audit: acts on record, and the state of each chain of them (C406)."""

from collections.abc import Sequence
from datetime import datetime

from oncefence.app.operator_messages import OperatorAnswer
from oncefence.storage.audit_chain import LinkFault
from oncefence.storage.phases.list_audit import AuditRow
from oncefence.storage.phases.verify_audit_chain import ChainState


class AuditEntry(OperatorAnswer):
    """One act; `digest` binds it to every act before it."""

    sequence: int
    at: datetime
    actor: str
    act: str
    subject_kind: str
    subject_id: str
    note: str | None
    expected_version: str | None
    digest: str

    @classmethod
    def of(cls, row: AuditRow) -> "AuditEntry":
        """The entry of `row`."""
        return cls(
            sequence=row.sequence,
            at=row.at,
            actor=row.actor,
            act=row.act,
            subject_kind=row.subject_kind,
            subject_id=row.subject_id,
            note=row.note,
            expected_version=row.expected_version,
            digest=row.digest,
        )


class AuditEntries(OperatorAnswer):
    """The newest acts first; `next_before` asks for those before them, if there may be any."""

    org: str
    rows: list[AuditEntry]
    next_before: int | None


class BrokenLinkMessage(OperatorAnswer):
    """A place where a chain does not hold."""

    sequence: int
    fault: LinkFault


class ChainReport(OperatorAnswer):
    """The chain of one org; a head kept elsewhere proves later that nothing was made anew."""

    org: str
    rows: int
    head_sequence: int
    head: str
    first_broken: int | None
    broken: list[BrokenLinkMessage]

    @classmethod
    def of(cls, chain: ChainState) -> "ChainReport":
        """The report of `chain`."""
        return cls(
            org=chain.org,
            rows=chain.rows,
            head_sequence=chain.head_sequence,
            head=chain.head,
            first_broken=chain.first_broken,
            broken=[
                BrokenLinkMessage(sequence=link.sequence, fault=link.fault) for link in chain.broken
            ],
        )


class ChainReports(OperatorAnswer):
    """Chains by org; `is_whole` says whether each of them holds."""

    is_whole: bool
    chains: list[ChainReport]

    @classmethod
    def of(cls, chains: Sequence[ChainState]) -> "ChainReports":
        """The reports of `chains`."""
        return cls(
            is_whole=all(chain.first_broken is None for chain in chains),
            chains=[ChainReport.of(chain) for chain in chains],
        )
