"""What realm a test is about: what it says itself, or the ``world.toml`` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from world.errors import RefusedError
from worldprotocol.api.config import CONFIG_NAME, read_config

NAMES: Final = frozenset({"domain", "policies", "projections", "effects", "enforcement", "limits", "workspace"})
"""What a test may say of its realm."""


def parts_of(given: Mapping[str, Any], folders: tuple[Path, ...]) -> dict[str, Any]:
    """Return what a realm is opened with, the folder where references start among it.

    Args:
        given: what the test says, see ``NAMES``; without a domain it is that of a configuration, as far as the test
            says nothing else. A workspace is only what the test itself names.
        folders: of the test and of its files; the first one that has a ``world.toml`` counts.

    Raises:
        RefusedError: ``INVALID_CONFIG``; ``INVALID_VALUE`` for another name.
    """
    unknown = sorted(given.keys() - NAMES)
    if unknown:
        known = ", ".join(sorted(NAMES))
        raise RefusedError("INVALID_VALUE", f"A realm of a test has no {unknown[0]!r}; it has {known}.")
    if given.get("domain") is not None:
        return {"folder": folders[0], **given}
    for folder in folders:
        if (folder / CONFIG_NAME).is_file():
            return {**read_config(folder / CONFIG_NAME).parts(), "workspace": None, **given}
    looked = ", ".join(dict.fromkeys(map(str, folders)))
    raise RefusedError(
        "INVALID_CONFIG", f"Give the test a domain, or put a {CONFIG_NAME} beside it (looked in {looked})."
    )
