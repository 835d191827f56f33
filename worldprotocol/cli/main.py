"""Entry point of ``worldctl``.

``--help`` has to be quick, so nothing here imports the engine: click alone (about 35 ms) draws the list of commands
from ``worldprotocol.cli.registry``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run ``worldctl`` and end the process with its exit code.

    Args:
        arguments: what was typed after ``worldctl``; None is ``sys.argv``.
    """
    from worldprotocol.cli.support.isolation import isolate

    isolate()
    import gc
    import sys

    _open_missing_streams()
    try:
        from worldprotocol.cli.program import INTERRUPTED, run
    except KeyboardInterrupt:  # before anything was begun
        sys.exit(130)
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # a second one, while the first was reported
        code = INTERRUPTED
    if "duckdb" not in sys.modules:  # it counts its objects when the process ends, and reports those that are left
        gc.freeze()  # what ends with the process need not be looked through first: that takes 0.1 s
    sys.exit(code)


def _open_missing_streams() -> None:
    """Put the null device in place of standard streams that were closed, so that no file gets their descriptors."""
    import os
    import sys

    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # open until the process ends
