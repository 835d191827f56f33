"""The name of a policy, as commands are given it: a name, or a policy file that ``world.toml`` names."""

from __future__ import annotations

from pathlib import Path

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext


def named(desk: CommandContext, given: str) -> str:
    """Return the name of the policy in a policy file that world.toml names; a name is a name.

    Raises:
        RefusedError: ``UNKNOWN_POLICY`` for another file, and what reading it refuses.
    """
    from authority import is_policy_file, policy_from_file
    from world.errors import RefusedError
    from worldprotocol.api.config import CONFIG_NAME

    if not is_policy_file(given):
        return given
    config = desk.settings()
    known = {(config.folder / one).resolve() for one in config.policies if is_policy_file(one)}
    path = next((one.resolve() for one in (Path(given), config.folder / given) if one.resolve() in known), None)
    if path is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"{given} is not among the policies of {config.folder / CONFIG_NAME}; add it there, so that it is known "
            "to every process that acts: policies = [...].",
            policy=given,
        )
    return policy_from_file(path).name
