"""Options of a test's realm, from the test or from ``world.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from world.core import Domain
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.limits import Limits
from world.state.ports import Enforcement
from worldprotocol.api.config import CONFIG_NAME, WorkspaceConfig, read_config


class RealmOptions(TypedDict, total=False):
    """Options of a test's realm, as for ``Realm.open``.

    Args:
        domain: a domain, a reference to one, or a file.
        policies: policies, or references to them.
        projections: projections, or references to them.
        effects: effect handlers, or references to them.
        enforcement: enforcement mode.
        limits: limits of the pipeline.
        workspace: a folder, or its configuration.
    """

    domain: Domain | str | Path | None
    policies: Iterable[Any]
    projections: Iterable[Any]
    effects: Iterable[Any]
    enforcement: Enforcement
    limits: Limits | None
    workspace: WorkspaceConfig | str | Path | None


def parts_of(given: Mapping[str, Any], folders: tuple[Path, ...]) -> dict[str, Any]:
    """Return the keyword arguments with which a test's realm is opened.

    Args:
        given: options of the test, see ``RealmOptions``; without a domain they override those of a configuration,
            except its workspace, which is not used.
        folders: folders of the test and of its files; the first one with a ``world.toml`` is used.

    Raises:
        RefusedError: ``INVALID_CONFIG``; ``INVALID_VALUE`` for another name.
    """
    names = RealmOptions.__annotations__.keys()
    unknown = sorted(given.keys() - names)
    if unknown:
        known = ", ".join(sorted(names))
        raise RefusedError(ErrorCode.INVALID_VALUE, f"A realm of a test has no {unknown[0]!r}; it has {known}.")
    if given.get("domain") is not None:
        return {"folder": folders[0], **given}
    for folder in folders:
        if (folder / CONFIG_NAME).is_file():
            return {**read_config(folder / CONFIG_NAME).parts(), "workspace": None, **given}
    searched = ", ".join(dict.fromkeys(map(str, folders)))
    raise RefusedError(
        ErrorCode.INVALID_CONFIG, f"Give the test a domain, or put a {CONFIG_NAME} beside it (searched: {searched})."
    )
