"""Secrets of effects: their sources, their resolution, and their removal from results."""

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
