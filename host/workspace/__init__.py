"""The workspace: a folder that agents see as ``FILE:/``, reached only through directory handles.

``Workspace`` names what stands in it and works on it so that nothing outside can be touched, whatever links
and renames happen meanwhile; ``take`` and ``differences`` compare its content before and after a session.
Source: design section 8; KLIS-6; KO-5.2.
"""

from host.workspace.names import name_of, path_of
from host.workspace.root import IGNORE, PRIVATE, Workspace
from host.workspace.safe import FolderEntry, Kind, WalkEntry, kind_of
from host.workspace.scan import EntryDifference, Scan, Stamp, differences, take

__all__ = [
    "IGNORE",
    "PRIVATE",
    "EntryDifference",
    "FolderEntry",
    "Kind",
    "Scan",
    "Stamp",
    "WalkEntry",
    "Workspace",
    "differences",
    "kind_of",
    "name_of",
    "path_of",
    "take",
]
