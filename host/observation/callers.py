"""The code that made an observed call, and whether it belongs to the interpreter."""

from __future__ import annotations

import linecache
import os
import shutil
import sys
import tokenize
from types import FrameType
from typing import Final

from host.observation.session_binding import OWN_CODE, SessionBinding

__all__ = [
    "caller",
    "is_import_frame",
    "is_of_import",
    "is_rmtree_frame",
    "is_runtime_import",
    "is_showing_source",
    "is_within_rmtree",
]

_IMPORTS: Final = vars(sys.modules["_frozen_importlib_external"])


def caller() -> FrameType | None:
    """Return the frame that made the call, outside the engine's own modules."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and any(frame.f_globals is own for own in OWN_CODE):
        frame = frame.f_back
    return frame


def is_of_import() -> bool:
    """Whether the import system made the call."""
    return is_import_frame(caller())


def is_import_frame(frame: FrameType | None) -> bool:
    """Whether a frame belongs to the import system."""
    return frame is not None and frame.f_globals is _IMPORTS


def is_within_rmtree() -> bool:
    """Whether ``shutil.rmtree`` made the call."""
    return is_rmtree_frame(caller())


def is_rmtree_frame(frame: FrameType | None) -> bool:
    """Whether ``shutil.rmtree`` is running, which was checked as a whole when it began."""
    return (
        frame is not None and frame.f_globals is vars(shutil) and frame.f_code.co_name.lstrip("_").startswith("rmtree")
    )


def is_showing_source(frame: FrameType | None, path: bytes) -> bool:
    """Whether a traceback or a warning reads a line of a loaded module."""
    if frame is None or frame.f_globals is not vars(tokenize) or frame.f_back is None:
        return False
    if frame.f_back.f_globals is not vars(linecache):
        return False
    name = os.fsdecode(path)
    return any(getattr(module, "__file__", None) == name for module in tuple(sys.modules.values()))


def is_runtime_import(bond: SessionBinding) -> bool:
    """Whether a library of the interpreter loads its own extension module during its import."""
    frame = caller()
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return True
        if not name.startswith("<frozen ") and (
            name.startswith("<") or bond.operations.opened(os.path.abspath(name), os.O_RDONLY)
        ):
            return False
        frame = frame.f_back
    return False


OWN_CODE.append(globals())
