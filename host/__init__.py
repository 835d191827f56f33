"""The host: from an approved proposal to its outcome. Effects, their journal, enforcement and backups."""
