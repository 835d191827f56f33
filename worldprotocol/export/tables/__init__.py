"""The log as typed tables of events, proposals, decisions and worlds: Parquet files, and questions in SQL."""
