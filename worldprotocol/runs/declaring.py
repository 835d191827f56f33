"""Conversion of command-line options or arguments to an intent manifest.

A place is a path in the workspace, from its root or from the current folder: ``src/app.py``, ``/src/app.py``. With a
final ``/``, ``/*`` or ``/**``, or where it is a folder, it includes everything below. Other patterns (``src/*.py``)
are replaced by the currently matching files. A name with a type (``URL:https://...``, ``FILE:/src/*``) is used
unchanged.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from host.workspace import Workspace
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource

__all__ = ["manifest_of_places", "opaque_manifest", "place_of", "url_resource"]

_TYPED: Final = re.compile(r"[A-Z][A-Z0-9_]*:")
_ALL_BELOW: Final = re.compile(r"(?:^|/)\*{0,2}$")


def manifest_of_places(
    workspace: Workspace,
    *,
    agent: str,
    session: str,
    places: Mapping[Predicate, Iterable[str]],
    renames: Iterable[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Return a manifest that declares places.

    Args:
        workspace: the workspace whose root is ``FILE:/``.
        agent: the agent of the manifest.
        session: its unit of work.
        places: by predicate.
        renames: old and new places.

    Raises:
        RefusedError: ``NO_MATCH`` for a pattern that no file matches, ``OUTSIDE_WORKSPACE``, ``NOTHING_DECLARED``.
    """
    scope: list[dict[str, str]] = []
    for predicate in sorted(places, key=lambda one: one is Predicate.DELETES):  # deletions come last
        for name in places[predicate]:
            scope += [{"predicate": predicate.value, "resource": text} for text in _resources(workspace, name)]
    for old, new in renames:
        (source,), (target,) = list(_resources(workspace, old))[:1], list(_resources(workspace, new))[:1]
        if source.endswith("/*") and not target.endswith("/*"):
            target = f"{target}/*"  # a folder becomes a folder
        scope.append({"predicate": Predicate.RENAMES.value, "resource": source, "to": target})
    if not scope:
        raise RefusedError(
            ErrorCode.NOTHING_DECLARED,
            "Nothing is declared, so nothing would be permitted; declare what it reads and writes (--reads, "
            "--writes, ...), or pass a manifest.",
        )
    unique = {(one["predicate"], one["resource"]): one for one in scope}
    manifest = {"ver": "1.0", "session_id": session, "agent_id": agent, "scope": list(unique.values())}
    deletes = any(one["predicate"] == Predicate.DELETES for one in scope)
    return manifest | {"ordered": True} if deletes else manifest


def opaque_manifest(workspace: Workspace, *, agent: str, session: str, folder: str) -> dict[str, Any]:
    """Return the manifest of an undeclared, unconfined tool: it may change its working directory (KO-5.1).

    Args:
        workspace: the workspace whose root is ``FILE:/``.
        agent: the agent of the manifest.
        session: its unit of work.
        folder: its working directory.

    Raises:
        RefusedError: ``OUTSIDE_WORKSPACE``.
    """
    found = workspace.resource(folder, follow=True, subtree=True)
    if found is None:
        raise _outside(workspace, folder)
    scope = [{"predicate": Predicate.MUTATES.value, "resource": found.text}]
    return {"ver": "1.0", "session_id": session, "agent_id": agent, "scope": scope}


def place_of(workspace: Workspace, name: str) -> Resource:
    """Return a place with everything below it, which need not exist; typed names are used unchanged.

    Args:
        workspace: the workspace whose root is ``FILE:/``.
        name: as written by a user.

    Raises:
        RefusedError: ``OUTSIDE_WORKSPACE``, ``AMBIGUOUS_RESOURCE`` and others.
    """
    if _TYPED.match(name):
        return canonical_resource(name, names=workspace.names)
    below = _ALL_BELOW.search(name)
    plain = name if below is None else name[: below.start()] or ("/" if name.startswith("/") else ".")
    return _place(workspace, plain, subtree=True)


def url_resource(text: str) -> str:
    """Return the resource of a URL as written by a user, such as ``https://example.org``.

    Raises:
        RefusedError: ``AMBIGUOUS_RESOURCE`` for a text that is not a URL.
    """
    return canonical_resource(text if text.startswith("URL:") else f"URL:{text}").text


def _resources(workspace: Workspace, name: str) -> Iterator[str]:
    if _TYPED.match(name):
        yield name
        return
    below = _ALL_BELOW.search(name)
    if below is not None:
        yield _place(workspace, name[: below.start()] or ("/" if name.startswith("/") else "."), subtree=True).text
        return
    if not glob.has_magic(name):
        path = _path(workspace, name)
        yield _place(workspace, name, subtree=os.path.isdir(path) and not os.path.islink(path)).text
        return
    found = sorted(glob.glob(_path(workspace, name), recursive=True, include_hidden=True))
    if not found:
        raise RefusedError(
            ErrorCode.NO_MATCH, f"No file matches {name!r}; for future files, declare their folder: 'folder/**'."
        )
    for path in found:
        resource = workspace.resource(path)
        if resource is not None:
            yield resource.text


def _path(workspace: Workspace, name: str) -> str:
    """Return the location of a place: from the root of the workspace with a leading slash, else the current folder."""
    if name.startswith("/"):
        inside = workspace.relative(name)
        return name if inside is not None else str(workspace.root) + name
    return os.path.join(os.getcwd(), name)


def _place(workspace: Workspace, name: str, *, subtree: bool) -> Resource:
    found = workspace.resource(_path(workspace, name), subtree=subtree)
    if found is None:
        raise _outside(workspace, name)
    return found


def _outside(workspace: Workspace, name: str) -> RefusedError:
    return RefusedError(
        ErrorCode.OUTSIDE_WORKSPACE,
        f"{name!r} is outside of the workspace {str(workspace.root)!r} and cannot be declared. Change into the "
        "workspace, or set [workspace] root of world.toml to another folder.",
        path=name,
    )
