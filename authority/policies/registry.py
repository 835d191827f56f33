"""The policies at hand, by name.

Policies come from the operator (given, or loaded by reference) and from installed packages, which offer them
as entry points of the group ``worldprotocol.rules``; those are loaded when they are first asked for. A policy
that cannot be loaded is not at hand, and says why (CARD-policy).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final, Self

from authority.policies.loading import as_policy, policy_from_entry_point, policy_from_reference
from authority.policies.policy import Policy
from authority.policies.rules import Rule
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict

ENTRY_POINTS: Final = "worldprotocol.rules"
"""The group of entry points by which packages offer policies and rules."""


class PolicyRegistry:
    """Policies by name; safe to be asked from several threads.

    Args:
        policies: those given at once.
        offered: entry points to load from when their name is asked for.

    Raises:
        RefusedError: ``DUPLICATE_POLICY`` for two different policies under one name.
    """

    def __init__(self, policies: Iterable[Policy] = (), *, offered: Iterable[EntryPoint] = ()) -> None:
        self._policies: dict[str, Policy] = {}
        self._failed: dict[str, RefusedError] = {}
        self._offered: defaultdict[str, list[EntryPoint]] = defaultdict(list)
        self._loading = threading.RLock()
        for point in offered:
            self._offered[point.name].append(point)
        for policy in policies:
            self.add(policy)

    @classmethod
    def installed(cls, policies: Iterable[Policy] = ()) -> Self:
        """Return a registry of these policies and of what the installed packages offer."""
        return cls(policies, offered=entry_points(group=ENTRY_POINTS))

    def add(self, given: Policy | Rule | Iterable[Rule], *, name: str | None = None) -> Policy:
        """Take a policy on, in front of what packages offer; the same one twice is one.

        Args:
            given: a policy, a rule, or several rules.
            name: what rules are called together; None takes a single rule's name. A policy keeps its own.

        Raises:
            RefusedError: ``DUPLICATE_POLICY`` where another one has the name; ``INVALID_POLICY``,
                ``INVALID_RULE``.
        """
        called = str(name or getattr(given, "name", ""))
        policy = as_policy(given, name=called, origin=f"the policy {called!r}")
        with self._loading:
            known = self._policies.get(policy.name)
            if known is not None and known.hash != policy.hash:
                raise RefusedError(
                    "DUPLICATE_POLICY",
                    f"There is another policy {policy.name!r} already; give each a name of its own.",
                    policy=policy.name,
                    hashes=[known.hash, policy.hash],
                )
            return self._policies.setdefault(policy.name, policy)

    def load(self, reference: str, *, name: str | None = None, base: Path | None = None) -> Policy:
        """Load a policy by reference and take it on.

        Args:
            reference: ``module:attribute`` or ``path/to/file.py:attribute``: a policy, a rule or several
                rules; or a policy file, ``rules.toml`` or ``rules.yaml``.
            name: what rules are called together; None takes the attribute's name. A policy keeps its own.
            base: the folder that relative file names start from; None is the current folder.

        Raises:
            RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``, ``INVALID_POLICY``, ``INVALID_RULE``,
                ``DUPLICATE_POLICY``.
        """
        return self.add(policy_from_reference(reference, name=name, base=base))

    def names(self) -> list[str]:
        """Return the names of all policies, those included that were not loaded yet, sorted."""
        return sorted({*self._policies, *self._offered})

    def get(self, name: str) -> Policy:
        """Return a policy.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``; what loading it refused, each time anew.
        """
        known = self._policies.get(name)
        return known if known is not None else self._load_offered(name)

    def describe(self, name: str) -> FrozenDict:
        """Return ``{"name", "hash", "combination", "version"?, "rules": [{"rule", "source", "sourceHash",
        ...}]}``.

        Raises:
            RefusedError: as ``get``.
        """
        return self.get(name).description

    def _load_offered(self, name: str) -> Policy:
        with self._loading:
            if name in self._policies:
                return self._policies[name]
            if name not in self._failed:
                try:
                    return self.add(self._from_package(name))
                except RefusedError as refused:
                    if refused.code == "UNKNOWN_POLICY":
                        raise
                    self._failed[name] = refused
            failed = self._failed[name]
            raise RefusedError(failed.code, failed.message, **failed.details)

    def _from_package(self, name: str) -> Policy:
        points = self._offered.get(name, [])
        if not points:
            known = self.names()
            raise RefusedError(
                "UNKNOWN_POLICY",
                f"There is no policy {name!r} at hand; there is {', '.join(known) or 'none'}.",
                policy=name,
                known=known,
            )
        if len(points) > 1:
            values = sorted(point.value for point in points)
            raise RefusedError(
                "DUPLICATE_POLICY",
                f"Several packages offer a policy {name!r} ({', '.join(values)}); remove all but one.",
                policy=name,
                offered=values,
            )
        return policy_from_entry_point(points[0])
