"""The events of the log: their payloads, topics and schema versions."""
