"""Whether a domain has what hooks need of it: what confines shell commands, and the contents of files.

Without the first, words alone could approve a command; without the second, each call of a file would be refused. Hooks
ask this of the domain in force before each call. A domain that has no shell commands is refused, too. Source:
docs/agents.md, rule W and "Reading and writing files".
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

CONTENTS: Final[Mapping[str, str]] = {
    "file.read": "content",
    "file.edit": "base",
    "file.patch": "bases",
    "command.run": "content",
}
"""The members of inputs that say what files hold, by the actions of a domain that has them."""

TEMPLATE: Final = "coding-agents"
UPDATE: Final = (f"worldctl init --template {TEMPLATE} --update", "worldctl adopt", f"worldctl policy adopt {TEMPLATE}")
"""The commands that bring a realm of an earlier release of the template up to date, in its folder."""


def check_domain(schema: Mapping[str, Any]) -> None:
    """Check that a domain declares what confines shell commands, and takes the contents of files.

    Args:
        schema: of the domain in force, in portable form.

    Raises:
        RefusedError: ``HOOKS_NOT_CONFIGURED`` with the commands that bring an earlier copy of the template up to date.
    """
    actions = schema["actions"]
    if actions.get(COMMAND, {}).get("confinement") != CONFINEMENT:
        lack, member = f"declare what confines {COMMAND}", f"{COMMAND} the member `confinement`"
    else:
        lacking = [f"{action} the input `{name}`" for action, name in CONTENTS.items() if _lacks(actions, action, name)]
        if not lacking:
            return
        lack, member = "take the contents of files", ", ".join(lacking)
    commands = ", ".join(f"`{one}`" for one in UPDATE)
    raise RefusedError(
        ErrorCode.HOOKS_NOT_CONFIGURED,
        f"The domain in force, {schema['id']} {schema['version']}, does not {lack}, so no call of a coding agent is "
        f"judged by it. Stop the server and run in the folder of world.toml: {commands}; then start it again. In a "
        f"domain of your own, give {member} of the template {TEMPLATE}.",
        schema_id=schema["id"],
        version=schema["version"],
    )


def _lacks(actions: Mapping[str, Any], action: str, member: str) -> bool:
    """Return whether a domain has an action, and its input is closed without a member."""
    given = actions[action].get("input") if action in actions else None
    return isinstance(given, Mapping) and given.get("type") == "object" and member not in (given.get("fields") or {})
