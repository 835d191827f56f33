"""Independent model of the realm: plain dictionaries updated event by event.

It checks the requirements of the log without engine code, except for the names in the log. Each check names its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from worldprotocol.simulation.adoptions.model_adoption import AdoptionModel
from worldprotocol.simulation.calls.caller_model import ENDINGS, CallerModel
from worldprotocol.simulation.external.claim_model import ClaimModel
from worldprotocol.simulation.found import hold
from worldprotocol.simulation.model_leases import LeaseModel
from worldprotocol.simulation.model_log import LogModel, text_of
from worldprotocol.simulation.model_people import ModelQuestion
from worldprotocol.simulation.model_process import Process, Told
from worldprotocol.simulation.model_worlds import WorldModel, covers
from worldprotocol.simulation.scenario import Expectation

if TYPE_CHECKING:
    from world.state.ports import EffectTerms

__all__ = ["Model"]


class Model:
    """All that is known of a log by its events.

    Args:
        expects: what a first ruling must be; see ``Scenario``.
        adds: what a completed action adds to numbers; see ``Scenario``.
        done: how often the outside was changed, by idempotency key.
        fits: whether data obeys a schema, by the schema's hash; see ``Edition``.
        terms: what the handlers of effects promise, by the effect's type.
        adoptions: the model of adoptions and holds.
    """

    def __init__(
        self,
        expects: Callable[[Told, Told], Expectation],
        adds: Callable[[str, Any], Mapping[str, int]] | None,
        done: Mapping[str, int],
        fits: Mapping[str, Callable[[Any], bool]],
        terms: Mapping[str, EffectTerms],
        adoptions: AdoptionModel,
    ) -> None:
        """Begin with an empty log."""
        self.log = LogModel()
        self.adoptions = adoptions
        self.leases = LeaseModel()
        self.claims = ClaimModel()
        self.callers = CallerModel()
        self.worlds = WorldModel(adds)
        self.processes: dict[str, Process] = {}
        self.open: dict[str, Process] = {}
        self.actors: dict[str, Told] = {}
        self.bindings: dict[str, Told] = {}
        self.policies: set[str] = set()
        self.topics: Counter[str] = Counter()
        self.declared: Told = {}
        self.adopted: list[str] = []
        self.shadow: Told | None = None
        self._fits = fits
        self._terms = terms
        self._latest = 0
        self._replaced: list[str] = []
        self._expects = expects
        self._done = done
        self._intents: dict[str, str] = {}
        self._keys: Counter[str] = Counter()
        self._decisions: set[str] = set()
        self._answers: set[str] = set()
        self._running: dict[str, str] = {}
        self._epoch_seen = 0

    def take(self, row: Sequence[Any]) -> None:
        """Take in one stored row, in the order of the log."""
        rendered = self.log.take(row)
        topic = row[3]
        self.topics[topic] += 1
        self.adoptions.take(topic, rendered, self)
        self.callers.take(topic, rendered, self)
        step = _STEPS.get(topic)
        if step is not None:
            step(self, rendered)
        self.leases.take(topic, rendered)
        self.claims.take(topic, rendered)
        if topic != "effect.dropped" and row[1] != "klis":  # it comes whatever is due; those have a clock of their own
            self._latest = rendered["at"]

    def fits(self, schema: str | None = None, *worlds: str) -> bool:
        """Return whether worlds conform to a schema; the defaults are the schema in force and all heads."""
        fits = self._fits[schema or self.worlds.schema]
        return all(fits(self.worlds.worlds[one].data) for one in worlds or self.worlds.heads.values())

    def knows_intent(self, intent_id: str) -> bool:
        """Return whether an intent was submitted."""
        return intent_id in self._intents

    def needs_input(self, action: str) -> bool:
        """Return whether an action has a required input field."""
        given = self.declared[action].get("input") or {}
        return bool(given.get("schema", {}).get("required")) or any(
            spec.get("required") for spec in given.get("fields", {}).values()
        )

    def check_commit(self, *, lost_wakes: bool = False) -> None:
        """Check the invariants that hold between two commits.

        Args:
            lost_wakes: whether wake-ups were lost since the last check.
        """
        undecided = {name for name, one in self.open.items() if one.decision is None}
        self.leases.check_progress(undecided, may_lose=lost_wakes)
        for agent, session in {lease.owner for lease in self.leases.active.values()}:
            one = self.processes.get(session)
            if one is None:
                continue
            hold("KP-4a", f"{session} has ended and holds leases", one.ended is None)
            hold("WP-decision", f"{session} holds leases and is not decided", one.decision is not None)
            hold("KM-2.2", f"{agent} holds leases of another's proposal", one.rendered["actor"]["actorId"] == agent)
        self.adoptions.check_commit()
        self.callers.check_commit(self)
        hold("WP-epoch", f"{self._replaced[:1]} are superseded, and nothing took their place", not self._replaced)
        hold("WP-schema", "the head of a branch does not obey the schema in force", self.fits())
        for name, one in self.open.items():
            due = one.judged.get("deadline") if one.judged is not None and one.decision is None else None
            hold("WP-decision", f"{name} waits beyond its time", due is None or due >= self._latest)
        if self._epoch_seen != self.worlds.epoch:
            self._epoch_seen = self.worlds.epoch
            stale = [name for name, one in self.open.items() if one.decision is None and self._is_stale(one)]
            hold("WP-epoch", f"{stale[:1]} is undecided in an epoch that is over", not stale)

    def _is_stale(self, one: Process) -> bool:
        epoch: int = one.rendered["epoch"]
        return epoch < self.worlds.epoch

    # The registry

    def _domain(self, rendered: Told) -> None:
        hold("WP-schema", "another schema was in force", (rendered.get("previous") or "") == self.worlds.schema)
        hold("WP-schema", f"{list(self.open)[:1]} has not ended under its schema", not self.open)
        self._replaced.clear()
        self.adopted = list(dict.fromkeys((*self.adopted, rendered["schemaHash"])))
        self.worlds.schema = rendered["schemaHash"]
        self.declared = rendered["schema"]["actions"]

    def _actor(self, rendered: Told) -> None:
        actor = rendered["actor"]
        known = self.actors.get(actor["actorId"])
        hold("INT-3.1", "an actor became one of another kind", known is None or known["kind"] == actor["kind"])
        self.actors[actor["actorId"]] = actor

    def _bound(self, rendered: Told) -> None:
        policy = rendered["binding"].get("policy")
        hold("WP-bind", f"{rendered['actorId']} is not registered", rendered["actorId"] in self.actors)
        hold("WP-bind", f"the policy {policy} is not adopted", policy is None or policy in self.policies)
        self.bindings[rendered["actorId"]] = rendered["binding"]

    def _adopted(self, rendered: Told) -> None:
        self.policies.add(rendered["name"])

    def _retired(self, rendered: Told) -> None:
        bound = [one for one in self.bindings.values() if one.get("policy") == rendered["name"]]
        hold("WP-bind", f"the policy {rendered['name']} is retired, and an actor is bound by it", not bound)
        self.policies.discard(rendered["name"])

    def _shadow(self, rendered: Told) -> None:
        self.shadow = rendered if rendered.get("name") is not None else None

    def _is_shadowed(self, actor: str) -> bool:
        if self.shadow is None:
            return False
        return not self.shadow.get("actors") or actor in self.shadow["actors"]

    # Worlds and branches

    def _sealed(self, rendered: Told) -> None:
        maker = rendered["createdBy"]
        if maker is None:
            self.worlds.heads.setdefault(rendered["branch"], rendered["worldId"])
            self.worlds.seal(rendered, None)
            del self.worlds.heads[rendered["branch"]]
            return
        one = self.open.get(maker)
        hold("WP-exec", f"{maker} seals a world and is not executing", one is not None and one.status == "executing")
        assert one is not None
        assert one.decision is not None
        hold("WP-exec", f"{maker} seals a second world", one.sealed is None)
        waits = rendered["outcome"] == "completed" and (one.requested or one.doubtful)
        hold("HC-compute", f"{maker} completes while effects are under way", not waits)
        body = one.intent["body"]
        scopes = [body.get("scopeProposal"), one.decision["decision"]["approvedScope"]]
        patterns = [scope["allowedPaths"] for scope in scopes if scope and scope.get("allowedPaths") is not None]
        patterns += one.narrowed
        self.worlds.seal(rendered, {"type": body["type"], "input": body.get("input"), "scopes": patterns})
        one.sealed = rendered

    # The life of a proposal

    def _submitted(self, rendered: Told) -> None:
        name, intent = rendered["proposalId"], rendered["intent"]
        body, intent_id = intent["body"], intent["intentId"]
        hold("WP-decision", f"{name} is submitted twice", name not in self.processes)
        hold("INT-6.1.2", f"intent {intent_id} is submitted twice", intent_id not in self._intents)
        parts = [self.worlds.schema, body["type"], text_of(body.get("input")), text_of(body.get("scopeProposal"))]
        key = sha256(":".join(parts).encode()).hexdigest()
        hold("INT-6.2.1", f"intent {intent_id} has another intentKey", intent["intentKey"] == key)
        self._keys[key] += 1
        hold("INT-6.4", f"{name} is not attempt {self._keys[key]}", rendered["attempt"] == self._keys[key])
        hold("WP-epoch", f"{name} is submitted in another epoch", rendered["epoch"] == self.worlds.epoch)
        head = self.worlds.heads.get(rendered["branch"])
        hold("WP-base", f"{name} does not start from the head of its branch", rendered["baseWorld"] == head)
        actor = rendered["actor"]["actorId"]
        hold("INT-3.1", f"{actor} is not registered", rendered["actor"] == self.actors.get(actor))
        is_bound = actor in self.bindings or rendered.get("migration") is not None
        hold("WP-bind", f"{actor} is not bound", is_bound)
        hold("WP-schema", f"{name} is submitted under another schema", rendered["schemaHash"] == self.worlds.schema)
        self._intents[intent_id] = name
        self.processes[name] = self.open[name] = Process(rendered)

    def _judged(self, rendered: Told) -> None:
        one = self._of(rendered, "submitted", "evaluating")
        first, ruling = one.judged is None, rendered["ruling"]
        actor = one.rendered["actor"]["actorId"]
        if first and self.adoptions.is_migration(one):
            one.asked = ModelQuestion(rendered["binding"], actor)
            hold("WP-bind", "a migration is judged otherwise", rendered["binding"]["kind"] == "adoption")
        elif first:
            binding = self.bindings[actor]
            one.asked = ModelQuestion(binding, actor)
            hold("CARD-policy", f"a shadow of {rendered['proposalId']}", one.is_shadowed == self._is_shadowed(actor))
            hold("WP-bind", f"{actor} is judged by another binding than its own", rendered["binding"] == binding)
            body = one.intent["body"]
            expected = self._expects(binding, body)
            what = f"{body['type']} {body.get('input')} of {actor} was ruled {ruling['verdict']}, not {expected}"
            hold("CARD-policy", what, expected is None or ruling["verdict"] == expected)
        elif not one.waits_for_people:
            hold("WP-decision", f"{rendered['proposalId']} is judged again", False)
        assert one.asked is not None
        one.asked.take(ruling, rendered.get("deadline"), rendered["at"])
        one.judged = rendered

    def _shadowed(self, rendered: Told) -> None:
        one = self._of(rendered, "submitted")
        name, ruling, actor = rendered["proposalId"], rendered["ruling"], one.rendered["actor"]["actorId"]
        shadow = self.shadow if self._is_shadowed(actor) else None
        hold("CARD-policy", f"{name} is shadowed, and should not be", shadow is not None and not one.is_shadowed)
        assert shadow is not None
        one.is_shadowed = True
        hashes = {shadow["policyHash"], *self.adoptions.hashes}
        is_this = rendered["name"] == shadow["name"] and rendered.get("policyHash") in hashes
        hold("CARD-policy", f"{name} is shadowed by another policy", is_this)
        body = one.intent["body"]
        expected = self._expects({"kind": "policy_rules", "policy": rendered["name"]}, body)
        what = f"the shadow said {ruling['verdict']} to {body['type']} {body.get('input')}, not {expected}"
        hold("CARD-policy", what, expected is None or ruling["verdict"] == expected)

    def _answered(self, rendered: Told) -> None:
        one = self._of(rendered, "evaluating")
        answer = rendered["answer"]
        who, name = answer["by"]["actorId"], answer["answerId"]
        hold("WP-decision", f"{rendered['proposalId']} is answered and waits for no person", one.waits_for_people)
        hold("WP-decision", f"answer {name} counts twice", name not in self._answers)
        self._answers.add(name)
        assert one.judged is not None
        asked, due = one.judged["ruling"].get("ask", ()), one.judged.get("deadline")
        may = who in asked or ("*" in asked and self.actors[who]["kind"] == "human") or answer["choice"] == "reply"
        hold("WP-bind", f"{who} answers and was not asked", may)
        hold("WP-decision", f"{rendered['proposalId']} is answered too late", due is None or rendered["at"] <= due)
        assert one.asked is not None
        one.asked.answer(who, answer["choice"], answer.get("to"))
        if answer["choice"] == "narrow":
            one.narrowed.append(answer["scope"]["allowedPaths"])

    def _timed_out(self, rendered: Told) -> None:
        one = self._of(rendered, "evaluating")
        hold("WP-decision", "a time-out without a wait", one.waits_for_people)
        hold("WP-decision", "a time-out before its time", rendered["at"] > rendered["deadline"])
        assert one.asked is not None
        one.asked.time_out()

    def _decided(self, rendered: Told) -> None:
        one = self._of(rendered, "submitted", "evaluating")
        name, record = rendered["proposalId"], rendered["decision"]
        hold("WP-decision", f"{name} is decided twice", one.decision is None)
        hold(
            "WP-decision",
            f"decision {record['decisionId']} is there twice",
            record["decisionId"] not in self._decisions,
        )
        hold("WP-epoch", f"{name} is decided in a later epoch", one.rendered["epoch"] == self.worlds.epoch)
        self._decisions.add(record["decisionId"])
        verdict = None if one.judged is None else one.judged["ruling"]["verdict"]
        hold("WP-decision", f"{name} is decided while people are asked", verdict not in (None, "wait"))
        one.decision = rendered
        if record["decision"] == "rejected":
            self._end(one, "rejected")
            return
        hold("WP-exec", f"{name} is approved, and the ruling was {verdict}", verdict == "approve")
        approved = (record.get("approvedScope") or {}).get("allowedPaths")
        for narrowed in one.narrowed:
            is_narrow = approved is not None and all(covers(narrowed, pattern) for pattern in approved)
            hold("INT-13.3", f"{name} is approved within {approved}, and a rule narrowed it to {narrowed}", is_narrow)
        granted = self.leases.granted.get(rendered.get("verdictId", ""))
        is_granted = granted == name or self.adoptions.is_migration(one)
        hold("KM-2.2", f"{name} is approved without leases", is_granted)

    def _superseded(self, rendered: Told) -> None:
        one = self._of(rendered, "submitted", "evaluating")
        if not self._is_stale(one) and rendered.get("by") is None and rendered.get("reason") not in ENDINGS:
            self._replaced.append(rendered["proposalId"])  # a new domain has to follow in the same commit
        self._end(one, "superseded")

    def _started(self, rendered: Told) -> None:
        one = self._of(rendered, "approved", "executing")
        name, before = rendered["proposalId"], 0 if one.started is None else one.started["attempt"]
        hold("WP-exec", f"{name} is started out of turn", rendered["attempt"] == before + 1)
        if before == 0:
            head = self.worlds.heads[one.rendered["branch"]]
            hold("WP-exec", f"{name} is started on another world than the head", rendered["onWorld"] == head)
        else:
            kept = [(rendered[part], one.started and one.started[part]) for part in ("now", "seed", "onWorld")]
            hold("HC-context", f"{name} continues with another context", all(new == old for new, old in kept))
        key = one.rendered["executionKey"]
        hold("WP-exkey", f"{name} runs beside {self._running.get(key)}", self._running.get(key, name) == name)
        hold("HC-context", f"{name} has another seed", rendered["seed"] == one.intent["intentId"])
        self._running[key] = name
        one.started = rendered

    def _requested(self, rendered: Told) -> None:
        one = self._of(rendered, "executing")
        effect = rendered["requirement"]["id"]
        hold("HC-journal", f"effect {effect} is made again, and its result is known", effect not in one.journal)
        assert one.started is not None
        hold("HC-journal", f"effect {effect} belongs to another attempt", rendered["attempt"] == one.started["attempt"])
        one.requested[effect] = rendered
        one.doubtful.discard(effect)

    def _fulfilled(self, rendered: Told) -> None:
        one = self._of(rendered, "executing")
        effect = rendered["requirementId"]
        under_way = one.requested.pop(effect, None)
        hold("HC-compute", f"effect {effect} has a result and was not under way", under_way is not None)
        assert under_way is not None
        hold("HC-compute", "a stale result counts", rendered["attempt"] == under_way["attempt"])
        hold("HC-journal", f"effect {effect} has two results", effect not in one.journal)
        one.journal[effect] = rendered
        one.doubtful.discard(effect)
        if rendered["result"].get("error") is None:
            times = self._done.get(f"{one.intent['intentId']}:{effect}", 0)
            hold("HC-journal", f"effect {effect} was made {times} times outside", times == 1)

    def _doubted(self, rendered: Told) -> None:
        one = self._of(rendered, "executing")
        asked = one.requested.get(rendered["requirementId"])
        hold(
            "HC-journal", "an effect is in doubt that could be repeated", asked is not None and not asked["idempotent"]
        )
        one.doubtful.add(rendered["requirementId"])

    def _resolved(self, rendered: Told) -> None:
        one = self._of(rendered, "executing")
        hold("HC-journal", "what is resolved was in doubt", rendered["requirementId"] in one.doubtful)
        one.doubtful.discard(rendered["requirementId"])

    def _retried(self, rendered: Told) -> None:
        one = self._of(rendered, "executing")
        effect = rendered["requirementId"]
        asked = one.requested.get(effect)
        hold("HC-journal", "an effect is made again that may not be", asked is not None and asked["idempotent"])
        assert asked is not None
        one.failures[effect] += 1
        failures = one.failures[effect]
        hold("HC-journal", f"effect {effect} failed {failures} times", rendered["failures"] == failures)
        terms = self._terms.get(asked["requirement"]["type"])
        if terms is not None:
            hold("HC-journal", f"effect {effect} is tried too often", failures <= terms.retries)
            due = rendered["at"] + terms.backoff_ms * 2 ** (failures - 1)
            hold("HC-journal", f"effect {effect} is made again before {due}", rendered["due"] >= due)

    def _cancelled(self, rendered: Told) -> None:
        self._of(rendered, "approved", "executing").is_called_off = True

    def _is_over(self, one: Process) -> bool:
        """Return whether an execution can only fail from now on."""
        return one.is_called_off or one.rendered["proposalId"] in self.leases.revoked

    def _finish(self, rendered: Told, how: str) -> None:
        one = self._of(rendered, "executing")
        is_over = how == "completed" and self._is_over(one)
        hold("WP-exec", f"{rendered['proposalId']} lost its leases or was called off, and completes", not is_over)
        if one.sealed is None:
            self.worlds.meet(rendered, one.intent["body"])
        else:
            hold("WP-exec", "an execution ends in another's world", one.sealed["worldId"] == rendered["worldId"])
        self.worlds.move(rendered, completed=how == "completed")
        self._running.pop(one.rendered["executionKey"], None)
        self._end(one, how)

    def _end(self, one: Process, how: str) -> None:
        one.ended = how
        del self.open[one.rendered["proposalId"]]

    def _of(self, rendered: Told, *states: str) -> Process:
        one = self.processes.get(rendered["proposalId"])
        status = "unknown" if one is None else one.status
        hold("WP-fsm", f"{rendered['proposalId']} is {status}, not {' or '.join(states)}", status in states)
        assert one is not None
        return one


_STEPS: Final[Mapping[str, Callable[[Model, Told], None]]] = {
    "domain.adopted": Model._domain,
    "actor.registered": Model._actor,
    "actor.bound": Model._bound,
    "policy.adopted": Model._adopted,
    "policy.retired": Model._retired,
    "shadow.configured": Model._shadow,
    "world.sealed": Model._sealed,
    "branch.created": lambda model, rendered: model.worlds.create(rendered),
    "branch.switched": lambda model, rendered: model.worlds.switch(rendered),
    "proposal.submitted": Model._submitted,
    "proposal.shadowed": Model._shadowed,
    "proposal.judged": Model._judged,
    "human.answered": Model._answered,
    "human.timed_out": Model._timed_out,
    "decision.made": Model._decided,
    "proposal.superseded": Model._superseded,
    "execution.started": Model._started,
    "effect.requested": Model._requested,
    "effect.fulfilled": Model._fulfilled,
    "effect.retried": Model._retried,
    "effect.in_doubt": Model._doubted,
    "effect.resolved": Model._resolved,
    "execution.cancelled": Model._cancelled,
    "proposal.completed": lambda model, rendered: model._finish(rendered, "completed"),
    "proposal.failed": lambda model, rendered: model._finish(rendered, "failed"),
}
