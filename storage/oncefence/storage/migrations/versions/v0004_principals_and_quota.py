"""Who acts for whom, and how much: grants, renewals, quota, breakers, keys that are exchanged."""

from dataclasses import asdict

from alembic import op

from oncefence.domain.breaker import BREAKER, RULES
from oncefence.storage.sql_files import sql_file
from oncefence.storage.tables import breaker_rules, lifecycle_transitions

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add what later code needs; rows that are there keep their meaning."""
    connection = op.get_bind()
    for name in (
        "tables_0004",
        "grants_0004",
        "quota_0004",
        "breakers_0004",
        "rewrap_0004",
        "connections_0004",
        "start_attempt_v3",
        "settle_attempt_v3",
    ):
        script = sql_file(name)
        connection.connection.run_async(lambda driver, script=script: driver.execute(script))
    op.bulk_insert(
        lifecycle_transitions,
        [
            {
                "lifecycle": BREAKER.name,
                "source": row.source,
                "target": row.target,
                "trigger": row.trigger,
                "guard": row.guard,
                "actor": row.actor,
            }
            for row in BREAKER.transitions
        ],
    )
    op.bulk_insert(breaker_rules, [{"singleton": True, **asdict(RULES)}])


def downgrade() -> None:
    """
    Refuse: facts are never thrown away by a migration.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError(
        "restore a backup instead: tokens and their ledger outlive any rollback"
    )
