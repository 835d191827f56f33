"""``python -m conformance``: what the engine computes, for other implementations to compare with.

Each command reads JSON lines or a file and needs neither a log nor ``world.toml``. Errors, ``--json`` and exit codes
are those of ``worldctl``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from conformance.commands import root
from worldprotocol.cli.program import run

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code.

    Args:
        arguments: the words of the command line; None is ``sys.argv``.
    """
    sys.exit(run(sys.argv[1:] if arguments is None else arguments, root))


if __name__ == "__main__":
    main()
