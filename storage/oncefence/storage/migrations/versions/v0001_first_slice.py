"""The tables, guards and functions of the first slice."""

from alembic import op
from sqlalchemy import text

from oncefence.domain.execution import EXECUTION
from oncefence.domain.settlement import rows
from oncefence.domain.work_item import WORK_ITEM
from oncefence.storage.sql_files import sql_file
from oncefence.storage.tables import lifecycle_transitions, settlement_rules

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make everything, and fill the two tables of rules from the domain."""
    connection = op.get_bind()
    for name in (
        "tables_0001",
        "guards_0001",
        "shared_0001",
        "start_attempt_v1",
        "settle_attempt_v1",
    ):
        script = sql_file(name)
        # A prepared statement holds one command; the driver's own execute takes a script, in
        # the transaction that is open already.
        connection.connection.run_async(lambda driver, script=script: driver.execute(script))
    op.bulk_insert(
        lifecycle_transitions,
        [
            {
                "lifecycle": lifecycle.name,
                "source": row.source,
                "target": row.target,
                "trigger": row.trigger,
                "guard": row.guard,
                "actor": row.actor,
            }
            for lifecycle in (EXECUTION, WORK_ITEM)
            for row in lifecycle.transitions
        ],
    )
    op.bulk_insert(
        settlement_rules,
        [
            {
                "outcome": outcome,
                "at_ceiling": situation.at_ceiling,
                "may_have_applied": situation.may_have_applied,
                "replay_open": situation.replay_open,
                "item_state": row.item_state,
                "item_trigger": row.item_trigger,
                "execution_status": row.execution_status,
                "execution_trigger": row.execution_trigger,
                "failure_class": row.failure_class,
                "lookup_due": row.lookup_due,
            }
            for outcome, situation, row in rows()
        ],
    )
    connection.execute(text("GRANT SELECT ON oncefence.alembic_version TO oncefence_app"))


def downgrade() -> None:
    """
    Refuse: facts are never thrown away by a migration.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("restore a backup instead: admissions must outlive any rollback")
