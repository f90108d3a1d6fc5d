"""Providers as data: which catalog revision is current, and records that are being created."""

from alembic import op

from oncefence.storage.sql_files import sql_file

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add what later code needs; rows that are there keep their meaning."""
    connection = op.get_bind()
    for name in ("revisions_0003", "creates_0003", "start_attempt_v2", "settle_attempt_v2"):
        script = sql_file(name)
        connection.connection.run_async(lambda driver, script=script: driver.execute(script))


def downgrade() -> None:
    """
    Refuse: facts are never thrown away by a migration.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("restore a backup instead: links and revisions outlive any rollback")
