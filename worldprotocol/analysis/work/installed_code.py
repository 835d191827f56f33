"""Identity of the installed code of this package, for comparison with that of a worker on another machine."""

from __future__ import annotations

import hashlib
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from world.code.distributions import version_of

__all__ = ["DISTRIBUTION", "installed_code"]

DISTRIBUTION: Final = "world-protocol"

PACKAGES: Final = ("world", "projections", "authority", "host", "worldprotocol")


@cache
def installed_code() -> dict[str, Any]:
    """Return release, Python version, versions of required distributions, and digest of the source files.

    The digest covers the path and the text of each Python file of this package. It differs between installations of one
    release whose files differ. Of the optional distributions, the one that judges is among the required ones.
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
    return {
        "version": release,
        "python": platform.python_version(),
        "digest": digest.hexdigest()[:16],
        "distributions": {} if release == "not installed" else {name: version_of(name) for name in _required()},
    }


def _required() -> list[str]:
    """Return the names of the distributions with which this package computes."""
    lines = [line for line in requires(DISTRIBUTION) or () if "extra ==" not in line or line.startswith("cedarpy")]
    names = (re.match(r"[A-Za-z0-9._-]+", line) for line in lines)
    return sorted(name[0] for name in names if name is not None)
