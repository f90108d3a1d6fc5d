"""The whole kernel: claims of every family, pauses, operators, the audit's chain, pressure."""

from alembic import op

from oncefence.storage.sql_files import sql_file

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns and tables, fill them for what is there, and make the functions."""
    connection = op.get_bind()
    for name in ("tables_0002", "guards_0002", "claims_0002", "start_attempt_v2"):
        script = sql_file(name)
        connection.connection.run_async(lambda driver, script=script: driver.execute(script))


def downgrade() -> None:
    """
    Refuse: facts are never thrown away by a migration.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("restore a backup instead: audit and lineage outlive any rollback")
