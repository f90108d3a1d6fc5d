"""Runs the migrations on the connection that the phase `migrate_schema` hands over."""

from alembic import context

from oncefence.storage.tables import SCHEMA, metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table_schema=SCHEMA)
with context.begin_transaction():
    context.run_migrations()
