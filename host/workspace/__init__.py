"""Workspace: the folder that agents see as ``FILE:/``, accessed only by directory handles.

``Workspace`` names its files and changes them without touching anything outside, independent of concurrent links
and renames; ``take`` and ``differences`` compare its content before and after a session.
Source: design section 8; KLIS-6; KO-5.2.
"""

from host.workspace.differences import EntryDifference, differences
from host.workspace.names import name_of, path_of
from host.workspace.root import IGNORE, PRIVATE, Workspace
from host.workspace.safe import FolderEntry, Kind, kind_of
from host.workspace.scan import Scan, take
from host.workspace.stamps import Stamp

__all__ = [
    "IGNORE",
    "PRIVATE",
    "EntryDifference",
    "FolderEntry",
    "Kind",
    "Scan",
    "Stamp",
    "Workspace",
    "differences",
    "kind_of",
    "name_of",
    "path_of",
    "take",
]
