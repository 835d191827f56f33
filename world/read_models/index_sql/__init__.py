"""SQL of the index as text for the drivers, compiled beforehand for SQLite."""
