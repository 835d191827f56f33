"""The syntax trees of the project's modules, each parsed once per test process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module; callers share it and leave it as it is.

    The garbage collector does not visit it: the trees are kept to the end of the process, and have a million objects.
    """
    source = path.read_text(encoding="utf-8")
    enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
