"""Storage back ends of the log: SQLite and PostgreSQL."""
