"""The store in SQL: tables, queries, connections, schema versions."""
