"""Whether a domain says what confines shell commands: without it, words alone could approve a command.

Hooks ask this of the domain in force before each call. A domain that has no such action is refused, too: its calls
would be refused one by one. Source: docs/agents.md, rule W.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["COMMAND", "CONFINEMENT", "TEMPLATE", "UPDATE", "check_domain"]

COMMAND: Final = "command.run"
"""The action of shell commands."""

CONFINEMENT: Final[dict[str, Any]] = {"stated": "input.confined", "exact": ["input.command", "input.cwd"]}
"""What the domain declares of it (``world.core.declarations.confinement``)."""

TEMPLATE: Final = "coding-agents"
UPDATE: Final = (f"worldctl init --template {TEMPLATE} --update", "worldctl adopt", f"worldctl policy adopt {TEMPLATE}")
"""The commands that bring a realm of an earlier release of the template up to date, in its folder."""


def check_domain(schema: Mapping[str, Any]) -> None:
    """Check that a domain declares what confines shell commands.

    Args:
        schema: of the domain in force, in portable form.

    Raises:
        RefusedError: ``HOOKS_NOT_CONFIGURED`` with the commands that bring an earlier copy of the template up to date.
    """
    if schema["actions"].get(COMMAND, {}).get("confinement") == CONFINEMENT:
        return
    commands = ", ".join(f"`{one}`" for one in UPDATE)
    raise RefusedError(
        ErrorCode.HOOKS_NOT_CONFIGURED,
        f"The domain in force, {schema['id']} {schema['version']}, does not declare what confines {COMMAND}, so no "
        f"call of a coding agent is judged by it. Stop the server and run in the folder of world.toml: {commands}; "
        f"then start it again. In a domain of your own, give {COMMAND} the member `confinement` of the template "
        f"{TEMPLATE}.",
        schema_id=schema["id"],
        version=schema["version"],
    )
