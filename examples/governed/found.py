"""Founds the log that the current folder's ``world.toml`` names, where there is none yet: ``python ../found.py``."""

from __future__ import annotations

from pathlib import Path

from world.errors import RefusedError
from worldprotocol import Realm
from worldprotocol.api.config import read_config


def main() -> None:
    """Found the log, or leave it as it is."""
    config = read_config(Path("world.toml"))
    try:
        Realm.from_config(config, create=True).close()
    except RefusedError as refused:
        if refused.code != "ALREADY_FOUNDED":
            raise
    print(f"{config.log_address} holds the record of what is governed here.")


if __name__ == "__main__":
    main()
