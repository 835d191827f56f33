"""Secrets of effects: where their values come from, when they are read, and how they are kept out of the log."""

from host.secrets.masking import ValueMask
from host.secrets.secrets import ResolvedSecrets, Secrets
from host.secrets.sources import EnvironmentSecrets, FolderSecrets, KeyringSecrets, SecretSource

__all__ = [
    "EnvironmentSecrets",
    "FolderSecrets",
    "KeyringSecrets",
    "ResolvedSecrets",
    "SecretSource",
    "Secrets",
    "ValueMask",
]
