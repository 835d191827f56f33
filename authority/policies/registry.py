"""Registry of policies by name.

Policies are added by the operator (as objects or by reference) and by installed packages as entry points of the group
``worldprotocol.rules``, which are loaded on first use. A policy that cannot be loaded raises its error on every use
(CARD-policy).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final, Self

from authority.policies.loading import as_policy, policy_from_entry_point, policy_from_reference
from authority.policies.policy import Policy
from authority.policies.rules import Rule
from world.code.entry_points import entry_points
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.identity import RULES_IDENTITY
from world.model.immutable_json import FrozenDict

ENTRY_POINTS: Final = "worldprotocol.rules"
"""The entry point group of packages that provide policies and rules."""


class PolicyRegistry:
    """Thread-safe registry of policies by name.

    Args:
        policies: the initial policies.
        offered: entry points that are loaded on first use of their name.

    Raises:
        RefusedError: ``DUPLICATE_POLICY`` for two different policies under one name.
    """

    def __init__(self, policies: Iterable[Policy] = (), *, offered: Iterable[EntryPoint] = ()) -> None:
        self._policies: dict[str, Policy] = {}
        self._failed: dict[str, RefusedError] = {}
        self._earlier: dict[tuple[str, str | None], FrozenDict] = {}
        self._offered: defaultdict[str, list[EntryPoint]] = defaultdict(list)
        self._loading = threading.RLock()
        for point in offered:
            self._offered[point.name].append(point)
        for policy in policies:
            self.add(policy)

    @classmethod
    def installed(cls, policies: Iterable[Policy] = ()) -> Self:
        """Return a registry of these policies and those of installed packages."""
        return cls(policies, offered=entry_points(group=ENTRY_POINTS))

    def add(self, given: Policy | Rule | Iterable[Rule], *, name: str | None = None) -> Policy:
        """Register a policy, with precedence over packages; an equal one is kept once.

        Args:
            given: a policy, a rule, or several rules.
            name: the name of a policy made of rules; None takes a single rule's name. A policy keeps its own.

        Raises:
            RefusedError: ``DUPLICATE_POLICY`` where another policy has the name; ``INVALID_POLICY``,
                ``INVALID_RULE``.
        """
        called = str(name or getattr(given, "name", ""))
        policy = as_policy(given, name=called, origin=f"the policy {called!r}")
        with self._loading:
            known = self._policies.get(policy.name)
            if known is not None and known.hash != policy.hash:
                raise RefusedError(
                    ErrorCode.DUPLICATE_POLICY,
                    f"There is another policy {policy.name!r} already; give each a name of its own.",
                    policy=policy.name,
                    hashes=[known.hash, policy.hash],
                )
            return self._policies.setdefault(policy.name, policy)

    def load(self, reference: str, *, name: str | None = None, base: Path | None = None) -> Policy:
        """Load a policy by reference and register it.

        Args:
            reference: ``module:attribute`` or ``path/to/file.py:attribute``: a policy, a rule or several
                rules; or a policy file, ``rules.toml`` or ``rules.yaml``.
            name: the name of a policy made of rules; None takes the attribute's name. A policy keeps its own.
            base: the folder that relative file names start from; None is the current folder.

        Raises:
            RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``, ``INVALID_POLICY``, ``INVALID_RULE``,
                ``DUPLICATE_POLICY``.
        """
        return self.add(policy_from_reference(reference, name=name, base=base))

    def names(self) -> list[str]:
        """Return the sorted names of all policies, including those not yet loaded."""
        return sorted({*self._policies, *self._offered})

    def get(self, name: str) -> Policy:
        """Return a policy.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``; the error of loading it, on every call.
        """
        known = self._policies.get(name)
        return known if known is not None else self._load_offered(name)

    def describe(self, name: str, like: Mapping[str, Any] | None = None) -> FrozenDict:
        """Return the description of a policy as JSON.

        Its form is ``{"name", "hash", "combination", "version"?, "rules": [{"rule", "source", "identity", ...}]}``.

        Args:
            name: the policy.
            like: a recorded description; one of an earlier release is compared by the hash of its own form.

        Raises:
            RefusedError: as ``get``.
        """
        policy = self.get(name)
        if like is None or like.get("identity") == RULES_IDENTITY:
            return policy.description
        form = (name, like.get("identity"))
        if form not in self._earlier:
            self._earlier[form] = policy.hashed_like(like).description
        return self._earlier[form]

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
                ErrorCode.UNKNOWN_POLICY,
                f"There is no policy {name!r} at hand; there is {', '.join(known) or 'none'}.",
                policy=name,
                known=known,
            )
        if len(points) > 1:
            values = sorted(point.value for point in points)
            raise RefusedError(
                ErrorCode.DUPLICATE_POLICY,
                f"Several packages offer a policy {name!r} ({', '.join(values)}); remove all but one.",
                policy=name,
                offered=values,
            )
        return policy_from_entry_point(points[0])
