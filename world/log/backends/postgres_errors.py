"""Errors of psycopg and of commits as errors of the engine."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors

from world.error_codes import ErrorCode
from world.errors import (
    DamagedLogError,
    LogBusyError,
    RefusedError,
    StorageFullError,
    UnitEndedError,
    WorldProtocolError,
)
from world.log.store import MAX_HOLD_MS, conflict

__all__ = ["ended_unit", "translated", "unknown_commit"]

_DAMAGE: Final = (
    errors.DataCorrupted,
    errors.IndexCorrupted,
    errors.InternalError_,  # what the server says where something in a page makes no sense
    errors.IoError,
    errors.UndefinedFile,
    errors.CharacterNotInRepertoire,
)


def unknown_commit(what: str) -> WorldProtocolError:
    """Return the error for a commit whose acknowledgement was lost; ``what`` is the cause, as a clause."""
    return WorldProtocolError(
        ErrorCode.COMMIT_UNKNOWN,
        f"{what}: it may be stored or not. Repeat the command with the same intent id, or load the log again and look "
        "before you repeat it.",
    )


def ended_unit(where: str) -> UnitEndedError:
    """Return the error for a unit of work whose connection broke before anything of it was committed."""
    return UnitEndedError(
        ErrorCode.LOG_UNAVAILABLE,
        f"The connection to {where} broke while a unit of work held the log's lock, and nothing of it was recorded: "
        "another writer ended it after its time, or the server was stopped. Try again.",
        store=where,
        limit_ms=MAX_HOLD_MS,
    )


def translated(error: Exception, where: str) -> Exception:
    """Return the error of ours for an error of psycopg; other errors are returned as they are."""
    if not isinstance(error, psycopg.Error):
        return error
    if isinstance(error, (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)):
        return LogBusyError(
            ErrorCode.LOG_BUSY, f"Another writer keeps the log on {where} locked; try again.", store=where
        )
    if isinstance(error, (errors.UniqueViolation, errors.CheckViolation)):
        return conflict(error.diag.constraint_name or str(error))
    if isinstance(error, errors.DiskFull):
        return StorageFullError(
            ErrorCode.STORAGE_FULL,
            f"The server {where} has no room left. This commit was not appended, those before it were; "
            "free some space and try again.",
            store=where,
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return RefusedError(
            ErrorCode.LOG_READ_ONLY, f"The log on {where} cannot be written: {error.diag.message_primary}.", store=where
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return RefusedError(
            ErrorCode.LOG_READ_ONLY,
            f"The role of {where} lacks a right: {error.diag.message_primary}. Grant it, or use another role.",
            store=where,
        )
    if isinstance(error, errors.InvalidSchemaName):
        return RefusedError(
            ErrorCode.LOG_UNAVAILABLE,
            f"The role of {where} has no place for tables: no schema of its search_path exists and may be used by it. "
            "Create one, or grant USAGE and CREATE on one that exists.",
            store=where,
        )
    if isinstance(error, _DAMAGE):
        reason = " ".join(str(error).split())
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED, f"The database {where} is damaged: {reason}.", store=where, reason=reason
        )
    if isinstance(error, (errors.UndefinedTable, errors.UndefinedColumn)):
        return DamagedLogError(
            ErrorCode.LOG_DAMAGED,
            f"The database {where} is damaged: {error.diag.message_primary}. `worldctl doctor --rebuild` makes a lost "
            "index again; restore anything else from a copy.",
            store=where,
            reason=error.diag.message_primary,
        )
    if isinstance(error, errors.InvalidPassword):
        return RefusedError(ErrorCode.LOG_UNAVAILABLE, f"{where} refuses the user or the password.", store=where)
    if error.sqlstate is None or isinstance(error, (errors.AdminShutdown, errors.CrashShutdown)):
        return WorldProtocolError(
            ErrorCode.LOG_UNAVAILABLE,
            f"The server {where} cannot be reached: {str(error).strip()}. Try again when it runs.",
            store=where,
        )
    return WorldProtocolError(ErrorCode.LOG_FAILED, f"PostgreSQL failed on {where}: {error}.", store=where)
