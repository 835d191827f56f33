"""Independent model of adoptions: migrations, held proposals, carried-over intents, and refused states and inputs.

It is updated event by event beside ``worldprotocol.simulation.model`` and uses no engine code but the names in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from worldprotocol.simulation.found import hold
from worldprotocol.simulation.model_process import Process, Told
from worldprotocol.simulation.scenario import Edition, Scenario

if TYPE_CHECKING:
    from worldprotocol.simulation.model import Model

__all__ = ["AdoptionModel"]

REFUSED: Final = frozenset({"INVALID_STATE", "TYPE_MISMATCH"})
"""Codes of an action whose state does not fit its model."""


class AdoptionModel:
    """What the log says of adoptions and holds.

    Args:
        scenario: what is simulated.
        editions: its domains, by the hash of their schemas.
    """

    def __init__(self, scenario: Scenario, editions: Mapping[str, Edition]) -> None:
        """Begin with an empty log."""
        self._scenario = scenario
        self._editions = editions
        self.hashes = {one.hash for program in scenario.programs for one in (*scenario.policies, *program.policies)}
        self.policies: dict[str, str] = {}
        self.held: dict[str, Told] = {}
        self._schema = ""
        self._migrate: Callable[[Any], Any] | None = None
        self._due: set[str] = set()
        self._carried: dict[str, Any] = {}

    def take(self, topic: str, rendered: Told, model: Model) -> None:
        """Take in one event, before the rest of the model does."""
        step = _STEPS.get(topic)
        if step is not None:
            step(self, rendered, model)
        if topic != "proposal.held":
            self.held.pop(rendered.get("proposalId", ""), None)

    def check_commit(self) -> None:
        """Check what one commit must have done as a whole."""
        hold("WP-schema", f"branches are not migrated: {sorted(self._due)[:3]}", not self._due)
        hold("WP-epoch", f"{list(self._carried)[:1]} is named as a successor and was not submitted", not self._carried)

    def is_migration(self, one: Process) -> bool:
        """Return whether a proposal is part of an adoption."""
        return one.rendered.get("migration") is not None

    def can_adopt(self, model: Model, schema: str) -> bool:
        """Return whether the heads of all branches fit a schema, after its migration where it has one."""
        edition = self._editions[schema]
        heads = [model.worlds.worlds[head].data for head in model.worlds.heads.values()]
        if schema == self._schema:
            return all(map(edition.fits, heads))
        migrate = edition.migrates.get(self._version(self._schema))
        return all(edition.fits(data if migrate is None else migrate(data)) for data in heads)

    def _version(self, schema: str) -> str:
        return self._editions[schema].domain.schema.version if schema in self._editions else ""

    # Steps

    def _domain(self, rendered: Told, model: Model) -> None:
        before, self._schema = self._schema, rendered["schemaHash"]
        if before in ("", self._schema):
            return
        self._migrate = self._editions[self._schema].migrates.get(self._version(before))
        self._due = set() if self._migrate is None else set(model.worlds.heads)

    def _policy(self, rendered: Told, model: Model) -> None:
        self.policies[rendered["name"]] = rendered["policyHash"]

    def _retired(self, rendered: Told, model: Model) -> None:
        self.policies.pop(rendered["name"], None)

    def _held(self, rendered: Told, model: Model) -> None:
        name, cause = rendered["proposalId"], rendered["cause"]
        one = model.open.get(name)
        hold("WP-fsm", f"{name} is held and has ended", one is not None)
        assert one is not None
        if cause == "caller":
            hold("WP-fsm", f"{name} is held for its caller while {one.status}", one.status == "evaluating")
            return
        hold("WP-fsm", f"{name} is held while {one.status}", one.status in ("submitted", "approved", "executing"))
        hold("CARD-policy", f"{name} is held twice for one thing", self._differs(self.held.get(name), rendered))
        if cause == "policy":
            bound = model.bindings[one.rendered["actor"]["actorId"]].get("policy", "")
            hold(
                "CARD-policy", f"{name} is held for {rendered['names']}, bound by {bound}", rendered["names"] == [bound]
            )
            is_adopted = rendered["inForce"] == self.policies.get(bound)
            hold("CARD-policy", f"{name} is held for a policy that is not in force", is_adopted)
        if cause == "schema":
            hold("WP-schema", f"{name} is held for another schema", rendered["inForce"] == self._schema)
        if cause != "code":
            hold("CARD-policy", f"{name} is held, and nothing differs", rendered.get("atHand") != rendered["inForce"])
        self.held[name] = rendered

    def _differs(self, known: Told | None, rendered: Told) -> bool:
        parts = ("cause", "names", "atHand")
        return known is None or any(known.get(part) != rendered.get(part) for part in parts)

    def _submitted(self, rendered: Told, model: Model) -> None:
        name, body = rendered["proposalId"], rendered["intent"]["body"]
        carried = self._carried.pop(name, body)
        hold("INT-6.1.2", f"{name} carries on another intent", carried == body)
        if rendered.get("migration") is None:
            fits = self._scenario.takes(body["type"], body.get("input"))
            hold("IC-validate", f"{body['type']} {body.get('input')} does not fit, and was submitted", fits)
            return
        branch = rendered["branch"]
        hold("WP-schema", f"{branch} is migrated without an adoption, or twice", branch in self._due)
        hold("INT-3.1", "a migration is of an actor that is no system", rendered["actor"]["kind"] == "system")
        self._due.discard(branch)

    def _judged(self, rendered: Told, model: Model) -> None:
        one, ruling, bound = model.open.get(rendered["proposalId"]), rendered["ruling"], rendered["binding"]
        if one is not None and one.judged is None and ruling["verdict"] != "reject" and ruling.get("policyHash"):
            in_force = self.policies.get(bound.get("policy", ""))
            hold("CARD-policy", f"a policy judged that is not {in_force}", ruling["policyHash"] == in_force)

    def _decided(self, rendered: Told, model: Model) -> None:
        sources = [one.get("source") for one in rendered["decision"].get("trace") or () if one["rule"] == "the engine"]
        what = f"{rendered['proposalId']} is rejected because the program has another policy"
        hold("CARD-policy", what, "policy in force" not in sources)

    def _superseded(self, rendered: Told, model: Model) -> None:
        if rendered.get("successor") is not None:
            self._carried[rendered["successor"]] = model.processes[rendered["proposalId"]].intent["body"]

    def _completed(self, rendered: Told, model: Model) -> None:
        one, worlds = model.open.get(rendered["proposalId"]), model.worlds.worlds
        if one is None:
            return
        before, after = worlds[rendered["parent"]].data, worlds[rendered["worldId"]].data
        if self.is_migration(one):
            assert self._migrate is not None
            hold("WP-schema", "a migration made something else of the data", after == self._migrate(before))
        else:
            self._ended(one, before, "")

    def _failed(self, rendered: Told, model: Model) -> None:
        one = model.open.get(rendered["proposalId"])
        if one is not None and rendered["error"]["code"] in REFUSED:
            self._ended(one, model.worlds.worlds[rendered["parent"]].data, rendered["error"]["code"])

    def _ended(self, one: Process, before: Any, code: str) -> None:
        body = one.intent["body"]
        expected = None if self._scenario.ends is None else self._scenario.ends(body["type"], body.get("input"), before)
        what = f"{body['type']} {body.get('input')} ended with {code or 'a state'}, not {expected or 'a state'}"
        hold("WP-schema", what, expected is None or expected == code)


_STEPS: Final[Mapping[str, Callable[[AdoptionModel, Told, Any], None]]] = {
    "domain.adopted": AdoptionModel._domain,
    "policy.adopted": AdoptionModel._policy,
    "policy.retired": AdoptionModel._retired,
    "proposal.held": AdoptionModel._held,
    "proposal.submitted": AdoptionModel._submitted,
    "proposal.judged": AdoptionModel._judged,
    "decision.made": AdoptionModel._decided,
    "proposal.superseded": AdoptionModel._superseded,
    "proposal.completed": AdoptionModel._completed,
    "proposal.failed": AdoptionModel._failed,
}
