"""Alembic's entry point. It runs revisions on the connection, and in the transaction, that `upgrade` passes."""

from alembic import context

from tilewise.db.sql.models import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
