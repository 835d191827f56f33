"""Identities of the code of a realm that a process has loaded, for comparison with another process.

An audit by several processes is one answer about one code. Each process that loads the code compares it with that of
the command before it performs anything: functions of the domain, policies and projections by their identities
(``world.code.identity``), distributions that those reach by their versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from authority import PolicyRegistry
from authority.policies.policy import Policy
from projections import ProjectionRegistry
from world.code.identity import Identity, identity_of
from world.core import Domain
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["CodeIdentities", "check_same_code", "identities_of"]

CodeIdentities = Mapping[str, str]
"""Identity by name of what was loaded, such as ``action:order.place`` or ``policy:spending``."""

MAX_NAMED = 5
"""Differences in a message; all are in the details."""


def identities_of(
    domain: Domain,
    *,
    policies: PolicyRegistry | Iterable[Policy] = (),
    projections: ProjectionRegistry | None = None,
) -> dict[str, str]:
    """Return the identities of loaded code.

    Args:
        domain: the loaded domain.
        policies: the policies; of a registry all, those of installed packages too.
        projections: the projections.
    """
    found = {"schema": domain.schema.hash}
    found |= {name: identity or "without source" for name, identity in domain.sources().items()}
    reached = dict(domain.distributions())
    if isinstance(policies, PolicyRegistry):
        found |= {f"policy:{name}": _hash_of(policies, name) for name in policies.names()}
    else:
        found |= {f"policy:{one.name}": one.hash for one in policies}
    for one in projections or ():
        for what, function in (("projection", one.projection.project), ("accepts of projection", one.accepts)):
            identity: Identity | None = None if function is None else identity_of(function)
            if identity is not None:
                found[f"{what}:{one.projection_id}"] = identity.text
                reached |= identity.distributions
    return found | {f"distribution:{name}": version for name, version in reached.items()}


def check_same_code(loaded: CodeIdentities, expected: CodeIdentities) -> None:
    """Refuse to work with other code than the command has.

    Args:
        loaded: the identities of the code that this process has loaded.
        expected: those of the command.

    Raises:
        RefusedError: ``CLUSTER_UNFIT`` with every difference.
    """
    if loaded == expected:
        return
    names = sorted(name for name in {*loaded, *expected} if loaded.get(name) != expected.get(name))
    differences = [{"name": name, "here": loaded.get(name), "command": expected.get(name)} for name in names]
    shown = ", ".join(map(_words, differences[:MAX_NAMED]))
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    raise RefusedError(
        ErrorCode.CLUSTER_UNFIT,
        f"The code of the realm differs from that of the command: {shown}{more}. Nothing was performed with it. Give "
        "each worker the files and packages that the command has.",
        differences=differences,
    )


def _words(difference: Mapping[str, str | None]) -> str:
    here, command = difference["here"], difference["command"]
    if here is None or command is None:
        return f"{difference['name']} is only {'there' if here is None else 'here'}"
    short = ("distribution:", "schema")
    if not str(difference["name"]).startswith(short):
        return f"{difference['name']} is another"
    return f"{difference['name']} is {here[:12]} in place of {command[:12]}"


def _hash_of(policies: PolicyRegistry, name: str) -> str:
    """Return the hash of a policy, or why it cannot be loaded."""
    try:
        return policies.get(name).hash
    except RefusedError as refused:
        return f"not loaded: {refused.code}"
