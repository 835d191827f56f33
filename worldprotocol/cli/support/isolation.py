"""Keeps modules of the current folder out of ``worldctl``: what is imported late is never found there."""

from __future__ import annotations

import os
import sys

__all__ = ["isolate"]


def isolate() -> None:
    """Take the current folder off ``sys.path``, before anything else is imported.

    Python puts the folder of the script first on the path, or with ``-m`` and ``-c`` the current one; that entry is
    dropped, and so are relative and empty entries of ``PYTHONPATH``. Where the current folder is on the path
    otherwise (an absolute entry of ``PYTHONPATH``, an editable installation), it goes to the end, behind Python's own
    library and all that is installed.
    """
    here = os.path.realpath(os.curdir)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    unsafe = {os.path.realpath(one) for one in given if not os.path.isabs(one)} if given != [""] else set()
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    path = list(sys.path)
    if not sys.flags.safe_path and path:
        del path[0]
    path = [one for one in path if os.path.isabs(one) and os.path.realpath(one) not in unsafe]
    last = [one for one in path if os.path.realpath(one) == here]
    path = [one for one in path if one not in last]
    if home not in map(os.path.realpath, [*path, *last]):
        last.append(home)  # where this very package was found
    sys.path[:] = [*path, *last]
