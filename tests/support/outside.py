"""A distribution outside of the product, made in a folder on ``sys.path``: what installed packages plug in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cli.realm import ROOT, CliRealm, Said


def install(site: Path, package: str, code: str, offers: Mapping[str, str]) -> None:
    """Write a distribution of one module into a folder.

    Args:
        site: the folder.
        package: name of the distribution and of its module.
        code: of the module.
        offers: lines ``name = attribute`` by group of entry points; the attribute is one of the module.
    """
    site.mkdir(exist_ok=True)
    (site / f"{package}.py").write_text(code, encoding="utf-8")
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    groups = (f"[{group}]\n{_lines(lines, package)}\n" for group, lines in offers.items())
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")


def _lines(given: str, package: str) -> str:
    named = (line.partition("=") for line in given.splitlines())
    return "\n".join(f"{name.strip()} = {package}:{attribute.strip()}" for name, _, attribute in named)


@dataclass(frozen=True)
class RealmWithPackages(CliRealm):
    """A folder in which ``worldctl`` runs with the packages of the folder ``site``."""

    site: Path = Path()

    def __call__(self, *arguments: str, given: str | bytes = b"", code: int = 0, **variables: str) -> Said:
        """Run ``worldctl`` and check its exit code; no run may show a traceback."""
        path = f"{ROOT}{os.pathsep}{self.site}"
        return super().__call__(*arguments, given=given, code=code, PYTHONPATH=path, **variables)
