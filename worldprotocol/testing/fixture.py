"""What the fixture ``judge`` of the pytest plugin gives: policies that judge cases made of keywords."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from authority import Policy, is_policy_file
from authority.policies.loading import policy_from_reference
from authority.policies.registry import PolicyRegistry
from world.core import Domain
from worldprotocol.api.bootstrap import load_any_domain
from worldprotocol.policy_tools.cases import CaseDefaults, CaseEntry
from worldprotocol.testing.judging import CaseRuling, judged
from worldprotocol.testing.making import Maker

KEPT: Final = 3
"""Rulings that are shown when a test fails, the last ones."""


@dataclass(frozen=True, slots=True)
class Judging:
    """The fixture ``judge``: call it with a policy.

    Args:
        folders: where relative references start, the first in which there is such a file.
        last: the last rulings, with the names of their cases.
    """

    folders: tuple[Path, ...] = field(repr=False)
    last: deque[CaseRuling] = field(default_factory=lambda: deque(maxlen=KEPT), repr=False)

    def __call__(
        self, policy: Policy | str | Path, *, domain: Domain | str | Path | None = None, **given: Any
    ) -> PolicyJudge:
        """Return who judges cases by a policy.

        Args:
            policy: a policy; or a file, ``rules.toml``, or a reference, ``rules.py:house``, that starts at the folder
                of the test or else at pytest's root; or the name of one that an installed package offers.
            domain: for computed values and what actions declare: an object or a reference, as in world.toml.
            given: what all cases have in common, as ``PolicyJudge.case`` takes it: ``actor``, ``data``, ``now``, ...

        Raises:
            RefusedError: what loading them refuses; ``INVALID_VALUE`` for what is given.
        """
        at_hand = policy if isinstance(policy, Policy) else self._policy(str(policy))
        known = domain if domain is None or isinstance(domain, Domain) else self._domain(str(domain))
        return PolicyJudge(Maker(at_hand, known, CaseDefaults.read(_wire(given))), self.last)

    def told(self) -> str:
        """Return the last rulings as text."""
        return "\n\n".join(f"{_named(one)}\n{one}" for one in self.last)

    def _policy(self, reference: str) -> Policy:
        if not is_policy_file(reference) and ":" not in reference:
            return PolicyRegistry.installed().get(reference)
        return policy_from_reference(reference, base=self._base(reference.partition(".py:")[0], reference))

    def _domain(self, reference: str) -> Domain:
        return load_any_domain(reference, base=self._base(reference.partition(".py:")[0], reference))

    def _base(self, stem: str, reference: str) -> Path:
        name = reference if stem == reference else f"{stem}.py"
        return next((folder for folder in self.folders if (folder / name).is_file()), self.folders[0])


@dataclass(frozen=True, slots=True)
class PolicyJudge:
    """Judges cases by one policy.

    Args:
        maker: makes the cases.
        last: where rulings are kept.
    """

    maker: Maker = field(repr=False)
    last: deque[CaseRuling] = field(repr=False)

    def case(
        self,
        *,
        type: str,  # noqa: A002 - the intent's own word
        input: Any = None,  # noqa: A002
        actor: str | Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        computed: Mapping[str, Any] | None = None,
        history: Sequence[Mapping[str, Any]] | None = None,
        scope: str | Sequence[str] | None = None,
        now: datetime | str | int | None = None,
        branch: str | None = None,
        manifest: Sequence[Mapping[str, Any]] | None = None,
        binding: Mapping[str, Any] | None = None,
    ) -> CaseRuling:
        """Return what the policy says to a case.

        Args:
            type: the action that is wanted.
            input: its input.
            actor: the id of an agent, or ``{"id", "kind", "name", "meta"}``.
            data: the state in which it is wanted.
            computed: its computed values by name; None has the domain make them.
            history: earlier proposals, ``{"actor", "action", "input", "decision", "outcome", "at", "times"}``.
            scope: the patterns that the intent proposes.
            now: when, for instance ``2026-01-31T12:00:00Z``.
            branch: on which branch, ``main`` unless told.
            manifest: what the action declares to touch; None has the domain tell.
            binding: how people are asked: ``ask``, ``timeoutMs``, ``onTimeout``; of no other kind than policy_rules.

        Raises:
            RefusedError: ``INVALID_VALUE`` and ``INVALID_CASES`` with what is wrong with the case.
        """
        common = {"actor": actor, "data": data, "computed": computed, "history": history, "now": now}
        common |= {"branch": branch, "manifest": manifest, "binding": binding}
        intent = {"type": type, "input": input, "scope": [scope] if isinstance(scope, str) else scope}
        entry = CaseEntry.read({"name": type, "intent": intent, **_wire(common)})
        found = judged(self.maker.policy, self.maker.case(entry))
        self.last.append(found)
        return found


def _wire(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a test says in the form of a file; ``data`` and ``computed`` are the base."""
    wire = {name: _plain(one) for name, one in given.items() if one is not None}
    base = {name: wire.pop(name) for name in ("data", "computed") if name in wire}
    return {**wire, "base": {"data": {}, **base}} if base else wire


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _named(one: CaseRuling) -> str:
    return f"{one.case.intent.body.type} by {one.case.actor.actor_id}"
