"""What the sections of ``world.toml`` have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

__all__ = ["Section", "placed"]


class Section(BaseModel):
    """A section: further keys, and values of other types, are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def placing(self, folder: Path, *names: str) -> Self:
        """Return a copy in which the paths of these names, as far as they are given, start at a folder."""
        given = ((name, getattr(self, name)) for name in names)
        return self.model_copy(update={name: placed(folder, path) for name, path in given if path is not None})


def placed(folder: Path, name: str) -> str:
    """Return the absolute path of a name; a relative one starts at a folder."""
    return str((folder / Path(name).expanduser()).resolve())
