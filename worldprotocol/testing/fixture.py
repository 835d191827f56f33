"""Fixture ``judge`` of the pytest plugin: cases from keyword arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from authority import Policy, is_policy_file
from authority.policies.loading import policy_from_reference
from authority.policies.registry import PolicyRegistry
from world.code.keyword_options import check_names
from world.core import Domain
from worldprotocol.api.bootstrap import load_any_domain
from worldprotocol.policy_tools.cases import CaseDefaults, CaseEntry
from worldprotocol.testing.judging import CaseRuling, judged
from worldprotocol.testing.making import Maker

KEPT: Final = 3
"""Number of last rulings that are shown when a test fails."""


class CommonCase(TypedDict, total=False):
    """State, history and time of a case.

    Args:
        actor: the id of an agent, or ``{"id", "kind", "name", "meta"}``.
        data: the data of the base world.
        computed: its computed values by name; None computes them by the domain.
        history: earlier proposals, ``{"actor", "action", "input", "decision", "outcome", "at", "times"}``.
        now: time of the submission, such as ``2026-01-31T12:00:00Z``.
        branch: the branch; ``main`` by default.
        manifest: declared resources of the action; None reads them from the domain.
        binding: options of human decisions: ``ask``, ``timeoutMs``, ``onTimeout``; its kind is policy_rules.
    """

    actor: str | Mapping[str, Any] | None
    data: Mapping[str, Any] | None
    computed: Mapping[str, Any] | None
    history: Sequence[Mapping[str, Any]] | None
    now: datetime | str | int | None
    branch: str | None
    manifest: Sequence[Mapping[str, Any]] | None
    binding: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Judging:
    """The fixture ``judge``: call it with a policy.

    Args:
        folders: start of relative references: the first one that contains the file.
        last: the last rulings, with the names of their cases.
    """

    folders: tuple[Path, ...] = field(repr=False)
    last: deque[CaseRuling] = field(default_factory=lambda: deque(maxlen=KEPT), repr=False)

    def __call__(
        self, policy: Policy | str | Path, *, domain: Domain | str | Path | None = None, **given: Unpack[CommonCase]
    ) -> PolicyJudge:
        """Return an object that judges cases by a policy.

        Args:
            policy: a policy; or a file, ``rules.toml``, or a reference, ``rules.py:house``, that starts at the folder
                of the test or else at pytest's root; or the name of one that an installed package offers.
            domain: for computed values and what actions declare: an object or a reference, as in world.toml.
            **given: defaults of all cases; see ``CommonCase``.

        Raises:
            RefusedError: the codes of loading; ``INVALID_VALUE`` for an invalid default.
        """
        loaded = policy if isinstance(policy, Policy) else self._policy(str(policy))
        known = domain if domain is None or isinstance(domain, Domain) else self._domain(str(domain))
        return PolicyJudge(Maker(loaded, known, CaseDefaults.read(_wire(given))), self.last)

    def rendered(self) -> str:
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
        maker: creates the cases.
        last: the last rulings.
    """

    maker: Maker = field(repr=False)
    last: deque[CaseRuling] = field(repr=False)

    def case(
        self,
        *,
        type: str,  # noqa: A002 - the intent's own word
        input: Any = None,  # noqa: A002
        scope: str | Sequence[str] | None = None,
        **given: Unpack[CommonCase],
    ) -> CaseRuling:
        """Judge a case by the policy.

        Args:
            type: type of the action.
            input: its input.
            scope: patterns of the proposed scope.
            **given: see ``CommonCase``.

        Raises:
            RefusedError: ``INVALID_VALUE`` and ``INVALID_CASES`` with the fault of the case.
            TypeError: an unknown keyword argument.
        """
        check_names(given, CommonCase)
        intent = {"type": type, "input": input, "scope": [scope] if isinstance(scope, str) else scope}
        entry = CaseEntry.read({"name": type, "intent": intent, **_wire(given)})
        ruling = judged(self.maker.policy, self.maker.case(entry))
        self.last.append(ruling)
        return ruling


def _wire(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments in the form of a file; ``data`` and ``computed`` are the base."""
    wire = {name: _plain(one) for name, one in given.items() if one is not None}
    base = {name: wire.pop(name) for name in ("data", "computed") if name in wire}
    return {**wire, "base": {"data": {}, **base}} if base else wire


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _named(one: CaseRuling) -> str:
    return f"{one.case.intent.body.type} by {one.case.actor.actor_id}"
