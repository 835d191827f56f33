"""Loading of policies: by reference, from files, and from installed packages.

The loaded object is a policy, a rule, or several rules; rules become a policy under the requested name. Loading runs
foreign code: every exception becomes a refusal with its origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from authority.bounded_text import error_text
from authority.policies.policy import Policy
from authority.policies.policy_text import is_policy_file, read_file
from world.code.references import load_reference
from world.error_codes import ErrorCode
from world.errors import RefusedError


def policy_from_reference(reference: str, *, name: str | None = None, base: Path | None = None) -> Policy:
    """Return the policy that a reference names.

    Args:
        reference: ``module:attribute``, ``path/to/file.py:attribute``, or a policy file: ``rules.toml``, ``.yaml``.
        name: the name of a policy made of rules; None takes the attribute's name. A policy keeps its own.
        base: the folder that relative file names start from; None is the current folder.

    Raises:
        RefusedError: ``BAD_REFERENCE`` for another form, ``NOT_LOADED`` where the object does not exist or its code
            raises; ``INVALID_POLICY`` and ``INVALID_RULE`` for an object that is not a policy.
    """
    if is_policy_file(reference):
        return policy_from_file((base or Path()) / reference)
    found = _guarded(reference, lambda: load_reference(reference, base=base))
    return as_policy(found, name=name or reference.rpartition(":")[2].rpartition(".")[2], origin=reference)


def policy_from_file(path: str | Path) -> Policy:
    """Return the policy of a file: ``rules.toml``, ``rules.yaml``, ``rules.cedar``.

    Raises:
        RefusedError: ``NOT_LOADED`` where the file, or the package for its language, cannot be read; ``INVALID_POLICY``
            with ``details["faults"]``, each ``{"path", "message", "line"}``.
    """
    path = Path(path)
    text = read_file(path)
    if path.suffix.lower() == ".cedar":
        from authority.policies.cedar import policy_from_cedar  # an extra

        return policy_from_cedar(text, path.name)
    from authority.policies.policy_file import policy_from_text  # its library takes 150 ms to import

    return policy_from_text(text, path.name)


def policy_from_entry_point(point: EntryPoint) -> Policy:
    """Return the policy of an entry point; rules are named after the entry point.

    Raises:
        RefusedError: as ``policy_from_reference``; ``INVALID_POLICY`` also for a policy whose name differs from
            the entry point's.
    """
    origin = f"entry point {point.name} ({point.value})"
    policy = as_policy(_guarded(origin, point.load), name=point.name, origin=origin)
    if policy.name != point.name:
        raise RefusedError(
            ErrorCode.INVALID_POLICY,
            f"The {origin} provides a policy with the name {policy.name!r}; give both the same name.",
            reference=point.value,
        )
    return policy


def as_policy(found: Any, *, name: str, origin: str) -> Policy:
    """Return a policy, or make one of rules.

    Args:
        found: a policy, a rule, or several rules.
        name: the name of a policy made of rules; a policy keeps its own name.
        origin: the origin of the object, for errors.

    Raises:
        RefusedError: ``INVALID_POLICY``, ``INVALID_RULE``.
    """
    if isinstance(found, Policy):
        return found
    is_several = isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping))
    try:
        return Policy(name, found if is_several and not callable(found) else [found])
    except RefusedError as refused:
        details = {**refused.details, "reference": origin}
        raise RefusedError(refused.code, f"{origin}: {refused.message}", **details) from None


def _guarded(origin: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (KeyboardInterrupt, RefusedError):
        raise
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, sys.exit() too
        raise RefusedError(
            ErrorCode.NOT_LOADED, f"{origin!r} could not be loaded: {error_text(error)}.", reference=origin
        ) from None
