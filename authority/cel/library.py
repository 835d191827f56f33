"""The package ``common-expression-language``, without its command line.

Importing the package imports its command line too, with two libraries for terminals that take ten times as long.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

__all__ = ["cel"]

_COMMAND_LINE: Final = "cel.cli"

if "cel" in sys.modules:
    import cel
else:
    sys.modules[_COMMAND_LINE] = ModuleType(_COMMAND_LINE)  # the package only imports it
    try:
        import cel
    finally:
        del sys.modules[_COMMAND_LINE]
    del cel.cli
