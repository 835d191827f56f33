"""SQL of the log as text for the drivers, compiled beforehand for SQLite."""
