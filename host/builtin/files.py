"""Effects on files of the workspace: read, list, write, append, create, delete, rename, mkdir.

Paths are as agents see them, ``/src/a.py`` or ``FILE:/src/a.py``; no path or link leads out of the workspace. All
effects may be repeated with the same idempotency key: the note of an interrupted effect (``host.builtin.notes``)
shows what it has already done. Where neither the state before nor the state after is found, the file is left unchanged
and the result is ``FILE_CHANGED_MEANWHILE``.
Source: design section 8; HC-journal; KO-2.1.
"""

from __future__ import annotations

import base64
import hashlib
import stat
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from host.builtin.effect_support import EFFECT_RESULT_TOO_LARGE, MAX_BYTES, EffectError, Params, fits, with_error_values
from host.builtin.workspace_entries import (
    FILE_EXISTS,
    FILE_NOT_FOUND,
    Content,
    FileEffect,
    FilePath,
    Mode,
    WorkspaceEntry,
    file_effect,
    is_same,
    read_at,
    read_entry,
    reporting_errors,
    stamp_of,
    subtree_of,
)
from host.effect_call import EffectCallInfo
from host.effects import EffectHandler, handler
from host.workspace import kind_of, name_of

__all__ = ["FILES", "MAX_ENTRIES"]

MAX_ENTRIES: Final = 10_000
"""Highest number of entries of a listing."""

_HASHED: Final = 1 << 20


class FileRead(Params):
    """Parameters of ``file.read``: the bytes to read and their encoding in the result."""

    path: FilePath
    encoding: Literal["utf-8", "base64"] = "utf-8"
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_BYTES)] | None = None


class FileList(Params):
    """Parameters of ``file.list``."""

    path: FilePath
    recursive: bool = False


class FileWrite(Content):
    """Parameters of ``file.write``; ``mode`` are the permissions, by default the existing or usual ones."""

    path: FilePath
    mode: Mode | None = None


class FileAppend(Content):
    """Parameters of ``file.append``; a missing file is created."""

    path: FilePath


class FileDelete(Params):
    """Parameters of ``file.delete``; a folder must be empty unless ``tree`` is set."""

    path: FilePath
    missing_ok: bool = False
    tree: bool = False


class FileRename(Params):
    """Parameters of ``file.rename``; an existing target is replaced only with ``replace``."""

    old: Annotated[FilePath, Field(alias="from")]
    new: Annotated[FilePath, Field(alias="to")]
    replace: bool = False


class FileMkdir(Params):
    """Parameters of ``file.mkdir``; ``parents`` also creates missing parents, and accepts an existing folder."""

    path: FilePath
    parents: bool = False


def _path(params: FileRead | FileWrite | FileAppend | FileMkdir) -> str:
    return params.path


@handler("file.read", input=FileRead, idempotent=True, touches=[("CONSUMES", _path)])
@with_error_values
def _read(params: FileRead, call: EffectCallInfo) -> Any:
    entry = read_entry(call, params.path)
    with entry.reading() as file, reporting_errors(entry.resource):
        data = read_at(file, params.offset, MAX_BYTES if params.limit is None else params.limit)
        more = read_at(file, params.offset + len(data), 1) != b""
        if params.limit is None and more:
            raise _too_large(entry, file)
        result: dict[str, Any] = {"path": entry.name, "offset": params.offset}
        if params.encoding == "utf-8":
            text, data = _decoded(entry, data, cut=more)
            result["text"] = text
        else:
            result["base64"] = base64.b64encode(data).decode()
        result |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        result["next"] = params.offset + len(data) if more else None
        if not fits(result):
            raise _too_large(entry, file)
    return result


def _decoded(entry: WorkspaceEntry, data: bytes, *, cut: bool) -> tuple[str, bytes]:
    """Decode a text; return it with its bytes, without an incomplete character at the limit."""
    try:
        return data.decode(), data
    except UnicodeDecodeError as error:
        if cut and error.start > 0 and error.end == len(data) and error.reason == "unexpected end of data":
            whole = data[: error.start]
            return whole.decode(), whole
    raise EffectError("FILE_NOT_TEXT", f"{entry.name}: it is not UTF-8; read it as base64.", {"path": entry.name})


def _too_large(entry: WorkspaceEntry, file: int) -> EffectError:
    digest, size = hashlib.sha256(), 0
    while piece := read_at(file, size, _HASHED):
        digest.update(piece)
        size += len(piece)
    return EffectError(
        EFFECT_RESULT_TOO_LARGE,
        f"{entry.name}: it does not fit into a result of {MAX_BYTES} bytes; read it in pieces, by offset and limit.",
        {"path": entry.name, "size": size, "sha256": digest.hexdigest()},
    )


def _listed_resource(params: FileList) -> str:
    return subtree_of(params.path) if params.recursive else params.path


@handler("file.list", input=FileList, idempotent=True, touches=[("CONSUMES", _listed_resource)])
@with_error_values
def _list(params: FileList, call: EffectCallInfo) -> Any:
    folder = read_entry(call, params.path)
    entries: list[dict[str, Any]] = []
    with reporting_errors(folder.resource):
        if params.recursive:
            found = folder.workspace.walk(folder.relative)
        else:
            above = folder.relative + b"/" if folder.relative else b""
            found = ((above + one.name, one.stat) for one in folder.workspace.list(folder.relative))
        for relative, seen in found:
            if len(entries) == MAX_ENTRIES:
                raise _too_many(folder)
            item: dict[str, Any] = {"path": name_of(relative), "kind": kind_of(seen.st_mode)}
            if stat.S_ISREG(seen.st_mode):
                item["size"] = seen.st_size
            entries.append(item)
    entries.sort(key=lambda item: str(item["path"]))
    listing = {"path": folder.name, "entries": entries}
    if not fits(listing):
        raise _too_many(folder)
    return listing


def _too_many(entry: WorkspaceEntry) -> EffectError:
    message = (
        f"{entry.name}: its listing has more than {MAX_ENTRIES} entries or {MAX_BYTES} bytes; list folders below it."
    )
    return EffectError(EFFECT_RESULT_TOO_LARGE, message, {"path": entry.name})


def _mode(mode: str | None) -> int | None:
    return None if mode is None else int(mode, 8)


@handler("file.write", input=FileWrite, idempotent=True, touches=[("MUTATES", _path)])
@with_error_values
def _write(params: FileWrite, call: EffectCallInfo) -> Any:
    data = params.data()
    with file_effect(call) as work:
        entry = work.entry(params.path)
        status, note_before = entry.lstat(), work.note.before
        if note_before is None:
            note_before = {"was": stamp_of(status)}
            work.note.write(note_before)
            is_done = False
        else:
            is_done = params.mode is None and status is not None and stat.S_ISREG(status.st_mode) and entry.holds(data)
        if not is_done:
            with work.change(entry):
                work.workspace.write(entry.relative, data, mode=_mode(params.mode), temporary_name=work.temporary_name)
    return _written(entry, data) | {"created": note_before["was"] is None}


@handler("file.create", input=FileWrite, idempotent=True, touches=[("PROVIDES", _path)])
@with_error_values
def _create(params: FileWrite, call: EffectCallInfo) -> Any:
    data = params.data()
    with file_effect(call) as work:
        entry = work.entry(params.path)
        status = entry.lstat()
        if status is not None and (work.note.before is None or not stat.S_ISREG(status.st_mode)):
            raise _exists_error(entry)
        if work.note.before is None:
            work.note.write({"was": None})
        if status is None:
            with work.change(entry):
                work.workspace.write(
                    entry.relative, data, mode=_mode(params.mode), must="not exist", temporary_name=work.temporary_name
                )
        elif not entry.holds(data):
            raise _exists_error(entry)
    return _written(entry, data)


def _written(entry: WorkspaceEntry, data: bytes) -> dict[str, Any]:
    return {"path": entry.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _exists_error(entry: WorkspaceEntry) -> EffectError:
    return EffectError(FILE_EXISTS, f"{entry.name}: the path already exists.", {"path": entry.name})


def _missing_error(entry: WorkspaceEntry) -> EffectError:
    return EffectError(FILE_NOT_FOUND, f"{entry.name}: the file or folder does not exist.", {"path": entry.name})


@handler("file.append", input=FileAppend, idempotent=True, touches=[("MUTATES", _path)])
@with_error_values
def _append(params: FileAppend, call: EffectCallInfo) -> Any:
    data = params.data()
    with file_effect(call) as work:
        entry = work.entry(params.path)
        size = entry.size()
        note_before = work.note.before
        if note_before is None:
            note_before = {"size": size, "length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            work.note.write(note_before)
        start = int(note_before["size"] or 0)
        done = _appended(work, entry, (size or 0) - start, start, data)
        if size is None or done < len(data):
            with work.change(entry):
                work.workspace.append(entry.relative, data[done:])
    created = note_before["size"] is None
    return _written(entry, data) | {"offset": start, "size": start + len(data), "created": created}


def _appended(work: FileEffect, entry: WorkspaceEntry, done: int, start: int, data: bytes) -> int:
    """Return how many bytes of the data an earlier attempt has appended."""
    if done < 0 or done > len(data) or (done and entry.piece(start, done) != data[:done]):
        raise work.changed_meanwhile(entry, "it was changed by another process")
    return done


def _deleted_resource(params: FileDelete) -> str:
    return subtree_of(params.path) if params.tree else params.path


@handler("file.delete", input=FileDelete, idempotent=True, touches=[("DELETES", _deleted_resource)])
@with_error_values
def _delete(params: FileDelete, call: EffectCallInfo) -> Any:
    with file_effect(call) as work:
        entry = work.entry(params.path, follow=False)
        status, note_before = entry.lstat(), work.note.before
        if note_before is None:
            if status is None and not params.missing_ok:
                raise _missing_error(entry)
            note_before = {"was": stamp_of(status)}
            work.note.write(note_before)
        if status is not None and note_before["was"] is not None:
            if not is_same(status, note_before["was"]):
                raise work.changed_meanwhile(entry, "it was replaced")
            with work.change(entry):
                if params.tree and stat.S_ISDIR(status.st_mode):
                    work.workspace.remove_tree(entry.relative)
                else:
                    work.workspace.remove(entry.relative)
    return {"path": entry.name, "deleted": note_before["was"] is not None}


@handler(
    "file.rename",
    input=FileRename,
    idempotent=True,
    touches=[("RENAMES", lambda params: params.old), ("PROVIDES", lambda params: params.new)],
)
@with_error_values
def _rename(params: FileRename, call: EffectCallInfo) -> Any:
    with file_effect(call) as work:
        old, new = work.entry(params.old, follow=False), work.entry(params.new, follow=False)
        status, target, note_before = old.lstat(), new.lstat(), work.note.before
        if note_before is None:
            if status is None:
                raise _missing_error(old)
            if target is not None and not params.replace:
                raise _exists_error(new)
            note_before = {"was": stamp_of(status)}
            work.note.write(note_before)
        elif status is None:
            if not is_same(target, note_before["was"]):
                raise work.changed_meanwhile(new, f"{old.name} was moved elsewhere")
            return {"from": old.name, "to": new.name}
        if not is_same(status, note_before["was"]):
            raise work.changed_meanwhile(old, "it was replaced")
        with work.change(old):
            work.workspace.rename(old.relative, new.relative, replace=params.replace)
    return {"from": old.name, "to": new.name}


@handler("file.mkdir", input=FileMkdir, idempotent=True, touches=[("PROVIDES", _path)])
@with_error_values
def _mkdir(params: FileMkdir, call: EffectCallInfo) -> Any:
    with file_effect(call) as work:
        entry = work.entry(params.path)
        status, note_before = entry.lstat(), work.note.before
        is_folder = status is not None and stat.S_ISDIR(status.st_mode)
        if status is not None and not (is_folder and (params.parents or note_before is not None)):
            raise _exists_error(entry)
        if note_before is None:
            note_before = {"was": stamp_of(status)}
            work.note.write(note_before)
        if status is None:
            with work.change(entry):
                work.workspace.mkdir(entry.relative, parents=params.parents)
    return {"path": entry.name, "created": note_before["was"] is None}


FILES: Final[tuple[EffectHandler, ...]] = (_read, _list, _write, _append, _create, _delete, _rename, _mkdir)
"""The handlers of this module."""
