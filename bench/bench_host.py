"""What the Host costs: audit hook, governed commands, backups, comparing content, journaled effects, watched children.

Usage: ``python -m bench host [PART ...] [--folder DIR] [--quick]``, where PART is one of hook, run, backups, content,
effects and child; all of them unless told otherwise. Each part measures what it compares in turns, in one run, and
prints ratios: the hook against no hook, ``worldctl run -- true`` against ``python -c pass``, backups against
``cp -a``, comparing 100,000 files against ``sha256sum`` and ``git status``, effects against the bare driver, and an
opened file of a confined command against the same loop alone and under ``strace``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench import host_backups, host_child, host_content, host_effects, host_hook, host_run

MODULES: Final = {
    "hook": host_hook,
    "run": host_run,
    "backups": host_backups,
    "content": host_content,
    "effects": host_effects,
    "child": host_child,
}
PARTS: Final[dict[str, Callable[[Path], None]]] = {name: module.measure for name, module in MODULES.items()}
QUICK: Final[dict[str, Callable[[Path], None]]] = {
    **PARTS,
    "backups": partial(host_backups.measure, files=1_000, large=20_000_000),
    "content": partial(host_content.measure, files=10_000),
    "effects": partial(host_effects.measure, effects=32),
    "child": partial(host_child.measure, opens=400),
}
"""The same with less of everything: to see that it runs, and about how long things take."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of them: {', '.join(PARTS)}; all if not given")
    parser.add_argument("--folder", help="where to measure; a temporary folder unless told otherwise")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller files")
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    for name in given.parts or PARTS:
        measure = (QUICK if given.quick else PARTS)[name]
        print(f"\n  {name}: {(MODULES[name].__doc__ or name).partition(chr(10))[0]}", flush=True)
        with tempfile.TemporaryDirectory(dir=given.folder) as place:
            measure(Path(place))


if __name__ == "__main__":
    main()
