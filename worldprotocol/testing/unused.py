"""Report of recorded logs that no test used, for a run of all tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from world.extras import missing_extra

try:
    import pytest
except ImportError:
    raise missing_extra("Tests of realms and policies", "pytest", "testing") from None

DEFAULT_FOLDER: Final = "golden"
"""How folders of recorded logs are called, where the configuration names none."""


def unused_logs(session: pytest.Session, used: Iterable[Path]) -> list[Path]:
    """Return the unused recorded logs; none after a partial or failed run.

    Args:
        session: the run, at its end.
        used: the recorded logs that tests used, resolved.
    """
    known = set(used)
    stopped = session.shouldstop or session.shouldfail or session.testsfailed
    if stopped or session.config.option.collectonly or not _is_whole(session.config):
        return []
    folders = {Path(folder).resolve() for folder in session.config.getini("worldprotocol_golden")}
    if not folders:
        folders = {path.parent for path in known if path.parent.name == DEFAULT_FOLDER}
    logs = {path.resolve() for folder in folders for path in folder.rglob("*.jsonl")}
    return sorted(logs - known)


def _is_whole(config: pytest.Config) -> bool:
    """Return whether the arguments select all tests."""
    began = config.invocation_params.dir
    given = [(began / argument.partition("::")[0]).resolve() for argument in config.args if "::" not in argument]
    root = config.rootpath
    wanted = [(root / name).resolve() for name in config.getini("testpaths")] or [root.resolve()]
    return all(any(one == folder or folder in one.parents for folder in given) for one in wanted)
