"""Backups of the resources that a session may change, and the rollback to them (KLIS-6 sections 3.3 and 7).

``Backups`` takes, restores and prunes; ``resources_to_save`` lists the resources that a manifest's triples may change.
"""

from host.backups.restore import Restored
from host.backups.retention import Pruned
from host.backups.store import CHANGES, BackupInfo, Backups, resources_to_save

__all__ = ["CHANGES", "BackupInfo", "Backups", "Pruned", "Restored", "resources_to_save"]
