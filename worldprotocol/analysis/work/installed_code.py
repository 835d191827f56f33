"""Identity of the installed code of this package, for comparison with that of a worker on another machine."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["DISTRIBUTION", "installed_code"]

DISTRIBUTION: Final = "world-protocol"

PACKAGES: Final = ("world", "projections", "authority", "host", "worldprotocol")


@cache
def installed_code() -> dict[str, str]:
    """Return release, Python version and digest of the source files of this package.

    The digest covers the path and the text of each Python file. It differs between installations of one release whose
    files differ.
    """
    digest = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for file in sorted(Path(folder).rglob("*.py")):
                for part in (f"{package}/{file.relative_to(folder).as_posix()}".encode(), file.read_bytes()):
                    digest.update(len(part).to_bytes(8, "big") + part)
    try:
        release = version(DISTRIBUTION)
    except PackageNotFoundError:
        release = "not installed"
    return {"version": release, "python": platform.python_version(), "digest": digest.hexdigest()[:16]}
