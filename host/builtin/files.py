"""Files of the workspace: read, list, write, append, create, delete, rename, mkdir.

Paths are as agents see them, ``/src/a.py`` or ``FILE:/src/a.py``; nothing outside of the workspace can be reached, and
no link is followed out of it. All of them may be repeated with the same idempotency key: what an effect that was cut
off has done already is found out from its note (``host.builtin.notes``) and not done again. Where neither the state
before nor the state after is found, nothing is touched and ``FILE_CHANGED_MEANWHILE`` is answered.
Source: design section 8; HC-journal; KO-2.1.
"""

from __future__ import annotations

import base64
import hashlib
import stat
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from host.builtin.effect_support import EFFECT_RESULT_TOO_LARGE, MAX_BYTES, EffectError, Params, answering, fits
from host.builtin.places import (
    FILE_EXISTS,
    FILE_NOT_FOUND,
    Content,
    FileEffect,
    FilePath,
    Mode,
    WorkspaceEntry,
    changing,
    is_same,
    looking,
    read_at,
    stamp_of,
    subtree_of,
    telling,
)
from host.effect_call import EffectCallInfo
from host.effects import EffectHandler, handler
from host.workspace import kind_of, name_of

__all__ = ["FILES", "MAX_ENTRIES"]

MAX_ENTRIES: Final = 10_000
"""How many entries a listing may have."""

_HASHED: Final = 1 << 20


class FileRead(Params):
    """Which bytes of a file are read, and how they are told."""

    path: FilePath
    encoding: Literal["utf-8", "base64"] = "utf-8"
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_BYTES)] | None = None


class FileList(Params):
    """Which folder is listed."""

    path: FilePath
    recursive: bool = False


class FileWrite(Content):
    """What a file shall hold; ``mode`` are its permissions, those it has (or the usual ones) unless they are given."""

    path: FilePath
    mode: Mode | None = None


class FileAppend(Content):
    """What is added at a file's end; a file that is missing is made."""

    path: FilePath


class FileDelete(Params):
    """What is deleted; a folder must be empty unless ``tree`` says that all in it goes, too."""

    path: FilePath
    missing_ok: bool = False
    tree: bool = False


class FileRename(Params):
    """What gets another name; what bears that name already is replaced only where that is said."""

    old: Annotated[FilePath, Field(alias="from")]
    new: Annotated[FilePath, Field(alias="to")]
    replace: bool = False


class FileMkdir(Params):
    """Which folder is made; ``parents`` makes those above it, too, and takes one that is there already."""

    path: FilePath
    parents: bool = False


def _path(params: FileRead | FileWrite | FileAppend | FileMkdir) -> str:
    return params.path


@handler("file.read", input=FileRead, idempotent=True, touches=[("CONSUMES", _path)])
@answering
def _read(params: FileRead, call: EffectCallInfo) -> Any:
    place = looking(call, params.path)
    with place.reading() as file, telling(place.resource):
        data = read_at(file, params.offset, MAX_BYTES if params.limit is None else params.limit)
        more = read_at(file, params.offset + len(data), 1) != b""
        if params.limit is None and more:
            raise _too_large(place, file)
        told: dict[str, Any] = {"path": place.name, "offset": params.offset}
        if params.encoding == "utf-8":
            text, data = _decoded(place, data, cut=more)
            told["text"] = text
        else:
            told["base64"] = base64.b64encode(data).decode()
        told |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        told["next"] = params.offset + len(data) if more else None
        if not fits(told):
            raise _too_large(place, file)
    return told


def _decoded(place: WorkspaceEntry, data: bytes, *, cut: bool) -> tuple[str, bytes]:
    """Return a text, and its bytes without the beginning of a character that the limit has cut."""
    try:
        return data.decode(), data
    except UnicodeDecodeError as error:
        if cut and error.start > 0 and error.end == len(data) and error.reason == "unexpected end of data":
            whole = data[: error.start]
            return whole.decode(), whole
    raise EffectError("FILE_NOT_TEXT", f"{place.name}: it is no UTF-8; read it as base64.", {"path": place.name})


def _too_large(place: WorkspaceEntry, file: int) -> EffectError:
    digest, size = hashlib.sha256(), 0
    while piece := read_at(file, size, _HASHED):
        digest.update(piece)
        size += len(piece)
    return EffectError(
        EFFECT_RESULT_TOO_LARGE,
        f"{place.name}: it does not fit into a result of {MAX_BYTES} bytes; read it in pieces, by offset and limit.",
        {"path": place.name, "size": size, "sha256": digest.hexdigest()},
    )


def _listed(params: FileList) -> str:
    return subtree_of(params.path) if params.recursive else params.path


@handler("file.list", input=FileList, idempotent=True, touches=[("CONSUMES", _listed)])
@answering
def _list(params: FileList, call: EffectCallInfo) -> Any:
    place = looking(call, params.path)
    entries: list[dict[str, Any]] = []
    with telling(place.resource):
        if params.recursive:
            found = ((one.relative, one.stat) for one in place.workspace.walk(place.relative))
        else:
            above = place.relative + b"/" if place.relative else b""
            found = ((above + one.name, one.stat) for one in place.workspace.list(place.relative))
        for relative, seen in found:
            if len(entries) == MAX_ENTRIES:
                raise _too_many(place)
            entry: dict[str, Any] = {"path": name_of(relative), "kind": kind_of(seen.st_mode)}
            if stat.S_ISREG(seen.st_mode):
                entry["size"] = seen.st_size
            entries.append(entry)
    entries.sort(key=lambda entry: str(entry["path"]))
    told = {"path": place.name, "entries": entries}
    if not fits(told):
        raise _too_many(place)
    return told


def _too_many(place: WorkspaceEntry) -> EffectError:
    told = f"{place.name}: its listing has more than {MAX_ENTRIES} entries or {MAX_BYTES} bytes; list folders below it."
    return EffectError(EFFECT_RESULT_TOO_LARGE, told, {"path": place.name})


def _mode(mode: str | None) -> int | None:
    return None if mode is None else int(mode, 8)


@handler("file.write", input=FileWrite, idempotent=True, touches=[("MUTATES", _path)])
@answering
def _write(params: FileWrite, call: EffectCallInfo) -> Any:
    data = params.data()
    with changing(call) as work:
        place = work.place(params.path)
        there, known = place.lstat(), work.note.before
        if known is None:
            known = {"was": stamp_of(there)}
            work.note.write(known)
            is_done = False
        else:
            is_done = params.mode is None and there is not None and stat.S_ISREG(there.st_mode) and place.holds(data)
        if not is_done:
            with work.change(place):
                work.workspace.write(place.relative, data, mode=_mode(params.mode), beside=work.beside)
    return _written(place, data) | {"created": known["was"] is None}


@handler("file.create", input=FileWrite, idempotent=True, touches=[("PROVIDES", _path)])
@answering
def _create(params: FileWrite, call: EffectCallInfo) -> Any:
    data = params.data()
    with changing(call) as work:
        place = work.place(params.path)
        there = place.lstat()
        if there is not None and (work.note.before is None or not stat.S_ISREG(there.st_mode)):
            raise _exists(place)
        if work.note.before is None:
            work.note.write({"was": None})
        if there is None:
            with work.change(place):
                work.workspace.write(
                    place.relative, data, mode=_mode(params.mode), must="not exist", beside=work.beside
                )
        elif not place.holds(data):
            raise _exists(place)
    return _written(place, data)


def _written(place: WorkspaceEntry, data: bytes) -> dict[str, Any]:
    return {"path": place.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _exists(place: WorkspaceEntry) -> EffectError:
    return EffectError(FILE_EXISTS, f"{place.name}: something is there already.", {"path": place.name})


def _missing(place: WorkspaceEntry) -> EffectError:
    return EffectError(FILE_NOT_FOUND, f"{place.name}: there is no such file or folder.", {"path": place.name})


@handler("file.append", input=FileAppend, idempotent=True, touches=[("MUTATES", _path)])
@answering
def _append(params: FileAppend, call: EffectCallInfo) -> Any:
    data = params.data()
    with changing(call) as work:
        place = work.place(params.path)
        size = place.size()
        known = work.note.before
        if known is None:
            known = {"size": size, "length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            work.note.write(known)
        start = int(known["size"] or 0)
        done = _appended(work, place, (size or 0) - start, start, data)
        if size is None or done < len(data):
            with work.change(place):
                work.workspace.append(place.relative, data[done:])
    created = known["size"] is None
    return _written(place, data) | {"offset": start, "size": start + len(data), "created": created}


def _appended(work: FileEffect, place: WorkspaceEntry, done: int, start: int, data: bytes) -> int:
    """Return how much of the data an earlier attempt has appended."""
    if done < 0 or done > len(data) or (done and place.piece(start, done) != data[:done]):
        raise work.changed_meanwhile(place, "it was changed by somebody else")
    return done


def _deleted(params: FileDelete) -> str:
    return subtree_of(params.path) if params.tree else params.path


@handler("file.delete", input=FileDelete, idempotent=True, touches=[("DELETES", _deleted)])
@answering
def _delete(params: FileDelete, call: EffectCallInfo) -> Any:
    with changing(call) as work:
        place = work.place(params.path, follow=False)
        there, known = place.lstat(), work.note.before
        if known is None:
            if there is None and not params.missing_ok:
                raise _missing(place)
            known = {"was": stamp_of(there)}
            work.note.write(known)
        if there is not None and known["was"] is not None:
            if not is_same(there, known["was"]):
                raise work.changed_meanwhile(place, "something else was put there")
            with work.change(place):
                if params.tree and stat.S_ISDIR(there.st_mode):
                    work.workspace.remove_tree(place.relative)
                else:
                    work.workspace.remove(place.relative)
    return {"path": place.name, "deleted": known["was"] is not None}


@handler(
    "file.rename",
    input=FileRename,
    idempotent=True,
    touches=[("RENAMES", lambda params: params.old), ("PROVIDES", lambda params: params.new)],
)
@answering
def _rename(params: FileRename, call: EffectCallInfo) -> Any:
    with changing(call) as work:
        old, new = work.place(params.old, follow=False), work.place(params.new, follow=False)
        there, target, known = old.lstat(), new.lstat(), work.note.before
        if known is None:
            if there is None:
                raise _missing(old)
            if target is not None and not params.replace:
                raise _exists(new)
            known = {"was": stamp_of(there)}
            work.note.write(known)
        elif there is None:
            if not is_same(target, known["was"]):
                raise work.changed_meanwhile(new, f"{old.name} went elsewhere")
            return {"from": old.name, "to": new.name}
        if not is_same(there, known["was"]):
            raise work.changed_meanwhile(old, "something else was put there")
        with work.change(old):
            work.workspace.rename(old.relative, new.relative, replace=params.replace)
    return {"from": old.name, "to": new.name}


@handler("file.mkdir", input=FileMkdir, idempotent=True, touches=[("PROVIDES", _path)])
@answering
def _mkdir(params: FileMkdir, call: EffectCallInfo) -> Any:
    with changing(call) as work:
        place = work.place(params.path)
        there, known = place.lstat(), work.note.before
        is_folder = there is not None and stat.S_ISDIR(there.st_mode)
        if there is not None and not (is_folder and (params.parents or known is not None)):
            raise _exists(place)
        if known is None:
            known = {"was": stamp_of(there)}
            work.note.write(known)
        if there is None:
            with work.change(place):
                work.workspace.mkdir(place.relative, parents=params.parents)
    return {"path": place.name, "created": known["was"] is None}


FILES: Final[tuple[EffectHandler, ...]] = (_read, _list, _write, _append, _create, _delete, _rename, _mkdir)
"""The handlers of this module."""
