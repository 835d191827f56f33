"""Lint of policies against a realm: its domain's schema, its actors, and the voters of its bindings.

``worldctl policy lint`` imports this. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from authority import Policy
from authority.lint.lint import LintContext, LintFinding, lint
from world.core import DomainSchema
from world.errors import RefusedError
from world.state.realm_view import RealmView


@dataclass(frozen=True, slots=True)
class Linting:
    """Lint of policies against one realm.

    Args:
        load: returns a policy by its name, file or reference, or raises ``RefusedError``.
        schema: the domain's schema; None omits the checks that need it.
        realm: the realm with actors and bindings; None omits the checks that need them.
    """

    load: Callable[[str], Policy]
    schema: DomainSchema | None
    realm: RealmView | None

    def findings(self, given: str) -> list[LintFinding]:
        """Return the findings for a policy; those for an unreadable policy are its faults, each with its line."""
        try:
            policy = self.load(given)
        except RefusedError as refused:
            return unreadable(given, refused)
        return lint(policy, self._surroundings(policy.name))

    def _surroundings(self, name: str) -> LintContext:
        if self.realm is None:
            return LintContext(self.schema)
        kinds = {actor_id: str(actor.kind) for actor_id, actor in self.realm.actors.items()}
        bound = [one for one in self.realm.bindings.values() if one.get("policy") == name]
        asks = list(dict.fromkeys(actor_id for one in bound for actor_id in one.get("ask", ())))
        return LintContext(self.schema, kinds, asks) if asks else LintContext(self.schema, kinds)


def unreadable(given: str, refused: RefusedError) -> list[LintFinding]:
    """Return the findings for a policy that cannot be read."""
    file = str(refused.details.get("reference", given))
    faults: Sequence[dict[str, object]] = refused.details.get("faults", ())
    return [
        LintFinding("error", "unreadable", f"{fault['path']}: {fault['message']}", file, int(str(fault["line"])))
        for fault in faults
    ] or [LintFinding("error", "unreadable", refused.message, file)]
