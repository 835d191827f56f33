"""Computed values of past worlds, for the commands: with the domain that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from world.errors import RefusedError
from worldprotocol.api.bootstrap import load_any_domain
from worldprotocol.api.past_values import PastValuesReader
from worldprotocol.cli.support.opening import admit_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from world.read_models.archive import Archive
    from worldprotocol.api.past_values import PastValues
    from worldprotocol.cli.support.command_context import CommandContext


def past_values(desk: CommandContext, archive: Archive) -> PastValuesReader:
    """Return what evaluates the computed values of past worlds.

    Args:
        desk: of the command, whose configuration names the domain.
        archive: of the log.
    """
    try:
        config = desk.settings()
        if config.domain is None:
            return PastValuesReader(archive, None)
        admit_code(desk, config)
        domain = load_any_domain(config.domain, base=config.folder, oldest_rules=1)
        return PastValuesReader(archive, domain, config.chosen_limits())
    except RefusedError as refused:
        return PastValuesReader(archive, None, why_none=refused.message)


def remarks(found: PastValues, name: str | None = None) -> Iterator[str]:
    """Yield what has to be said beside computed values: which are missing, and which other code evaluated.

    Args:
        found: the values.
        name: of the only value that is looked at; None is all of them.
    """
    if found.missing and name in (None, *found.missing):
        yield f"without computed values: {found.why}"
    for other in found.by_other_code:
        if name in (None, other):
            yield f"{other}: by today's code, which differs from the code of then"
