"""Text and JSON of proposals, runs and computed values for commands."""
