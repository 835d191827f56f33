"""Storage back ends of the log: SQLite, PostgreSQL, and exported Parquet files for reading."""
