"""Execution of the steps of a simulation through the public API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from world.engine.administration import retire_policy
from world.errors import RefusedError
from world.model.immutable_json import thaw
from world.pipeline.driver import submit
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import Task, UnitOfWork
from worldprotocol.simulation.adoptions.program_steps import run_program
from worldprotocol.simulation.calls.call_steps import CALL_ACTS
from worldprotocol.simulation.external.claim_steps import EXTERNAL_ACTS
from worldprotocol.simulation.found import hold
from worldprotocol.simulation.steps import LOST_WAKES
from worldprotocol.simulation.worker import SimulatedWorker as Worker

if TYPE_CHECKING:
    from worldprotocol.simulation.simulation import Simulation

__all__ = ["ACTS", "NOTHING"]

T = TypeVar("T")
Act = Callable[["Simulation", Worker, Mapping[str, Any]], str]

NOTHING: Final = "nothing to act on"
"""Result of a step without an effect."""

SOMEBODY: Final = "somebody"
"""A registered actor without a binding."""


def _pick(which: int, among: Sequence[T]) -> T | None:
    return among[which % len(among)] if among else None


def _issued(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> Any:
    actor = sim.scenario.actors[rendered["actor"] % len(sim.scenario.actors)].actor_id
    intent = worker.world.issue(actor, rendered["type"], rendered["input"], scope=rendered.get("scope"))
    sim.issued_under[intent.intent_id] = sim.model.worlds.schema
    return intent


def _submit(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    intent = _issued(sim, worker, rendered)
    options: dict[str, Any] = {"execution_key": rendered.get("key")}
    if "branch" in rendered:
        options["branch"] = _pick(rendered["branch"], list(sim.model.worlds.heads))
    if "fork" in rendered:
        done = [name for name, world in sim.model.worlds.worlds.items() if world.outcome == "completed"]
        options |= {"base_world": _pick(rendered["fork"], done), "branch": None}
    sim.intents.append(intent)
    try:
        proposal = worker.world.submit(intent, **options)
    except RefusedError as refused:
        is_unfit = refused.code == "DATA_DOES_NOT_FIT" and not sim.model.fits(None, str(options.get("base_world")))
        is_unfit |= refused.code == "INVALID_INPUT" and not sim.takes(rendered)
        hold("INT-6.1.2", f"a new intent was refused as {refused.code}", is_unfit or sim.is_fault(refused))
        return refused.code
    return f"{proposal.proposal_id} {proposal.status}"


def _batch(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    """Submit for several callers in one commit; with ``twice`` the last repeats the first."""
    intents = [_issued(sim, worker, drawn) for drawn in rendered["intents"]]
    if rendered["twice"]:
        intents.append(intents[0])
    ids = [sim.ids.new_id() for _ in intents]
    sim.intents += intents

    def command(at: int) -> Callable[[UnitOfWork], Any]:
        return lambda work: submit(work, Submission(intents[at]), ids[at])

    ended = worker.protocol.together([command(at) for at in range(len(ids))])
    refused = [at for at, result in enumerate(ended) if isinstance(result, Exception)]
    for one in ended:
        if isinstance(one, Exception) and (not isinstance(one, RefusedError) or sim.is_fault(one)):
            raise one
    expected = {at for at, drawn in enumerate(rendered["intents"]) if not sim.takes(drawn)}
    expected |= {len(ids) - 1} if rendered["twice"] else set()
    hold("INT-6.1.2", f"of a batch {refused} were refused: {ended}", set(refused) == expected)
    return f"{len(ids)} together"


def _again(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    intent = _pick(rendered["which"], sim.intents)
    if intent is None:
        return NOTHING
    known = sim.model.knows_intent(intent.intent_id)
    is_old = sim.issued_under[intent.intent_id] != sim.model.worlds.schema
    try:
        worker.world.submit(intent)
    except RefusedError as refused:
        fits = (known and refused.code == "INTENT_ALREADY_SUBMITTED") or (is_old and refused.code == "WRONG_SCHEMA")
        body = {"type": intent.body.type, "input": thaw(intent.body.input)}
        fits |= refused.code == "INVALID_INPUT" and not sim.takes(body)
        hold("INT-6.1.2", f"an intent was refused as {refused.code}", fits or sim.is_fault(refused))
        return refused.code
    hold("INT-6.1.2", f"the intent {intent.intent_id} was taken a second time", not known)
    hold("WP-schema", f"the intent {intent.intent_id} was issued under another schema, and taken", not is_old)
    return "submitted for the first time"


def _bad(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    wrong, world = rendered["wrong"], worker.world
    actor = sim.scenario.actors[rendered["actor"] % len(sim.scenario.actors)].actor_id
    heads = set(sim.model.worlds.heads.values())
    stale = next((name for name in sim.model.worlds.worlds if name not in heads), None)
    if wrong == "base" and stale is None:
        return NOTHING
    branch = sim.model.worlds.active

    def falsified() -> Any:
        intent = _issued(sim, worker, rendered)
        return world.submit({**intent.to_wire(), "intentKey": "0" * 64})

    wrongs: Mapping[str, tuple[str, Callable[[], Any]]] = {
        "action": ("UNKNOWN_ACTION", lambda: world.act(actor, "no.such.action", {})),
        "actor": ("UNKNOWN_ACTOR", lambda: world.act("nobody", rendered["type"], rendered["input"])),
        "base": (
            "STALE_BASE",
            lambda: world.act(actor, rendered["type"], rendered["input"], base_world=stale, branch=branch),
        ),
        "branch": ("UNKNOWN_BRANCH", lambda: world.act(actor, rendered["type"], rendered["input"], branch="nowhere")),
        "key": ("WRONG_SCHEMA", falsified),
        "unbound": ("ACTOR_NOT_BOUND", lambda: world.act(SOMEBODY, rendered["type"], rendered["input"])),
        "scope": (
            "INVALID_VALUE",
            lambda: world.act(actor, rendered["type"], rendered["input"], scope={"allowedPaths": [1]}),
        ),
        "input": ("INVALID_INPUT", lambda: world.act(actor, rendered["type"], {"no": "such input"})),
    }
    code, call = wrongs[wrong]
    try:
        done = call()
    except RefusedError as refused:
        fits = refused.code == code or (refused.code == "INVALID_INPUT" and not sim.takes(rendered))
        hold("INT-8.2", f"{wrong} was refused as {refused.code}", fits or sim.is_fault(refused))
        return refused.code
    takes_anything = wrong == "input" and not sim.model.needs_input(rendered["type"])
    hold("INT-8.2", f"a submission with a wrong {wrong} was taken", takes_anything)
    return f"{done.proposal_id} {done.status}"


def _receive(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    actor = sim.scenario.actors[rendered["actor"] % len(sim.scenario.actors)].actor_id
    payload = {"type": rendered["type"], "input": rendered["input"]}
    came = worker.world.project({"kind": "api", "eventId": sim.ids.new_id(), "payload": payload}, actor)
    return "nothing was selected" if came.proposal is None else f"{came.proposal.proposal_id} {came.proposal.status}"


def _decide(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    waiting = [name for name, one in sim.model.open.items() if one.waits_for_people]
    name = _pick(rendered["which"], list(sim.model.processes) if rendered["of"] == "any" else waiting)
    if name is None:
        return NOTHING
    one = sim.model.processes[name]
    people = [player.actor_id for player in sim.scenario.actors]
    asked = [] if one.judged is None else one.judged["ruling"].get("ask", [])
    by = _pick(rendered["actor"], asked if asked and rendered["actor"] % 5 else people)
    assert by is not None
    more: dict[str, Any] = {}
    if rendered["choice"] == "narrow":
        proposed = one.intent["body"].get("scopeProposal") or {}
        narrower = _pick(rendered["which"] // 2, sim.scenario.scopes) if rendered["which"] % 2 else None
        more["scope"] = [narrower] if narrower else proposed.get("allowedPaths") or ["data.*"]
    if rendered["choice"] == "delegate":
        more["to"] = people[rendered["which"] % len(people)]
    if not one.waits_for_people:
        return _too_late(sim, lambda: worker.world.decide(name, rendered["choice"], by=by, reason="late", **more))
    done = worker.world.decide(name, rendered["choice"], by=by, reason="for the simulation", **more)
    return f"{name} {rendered['choice']} by {by}: {done.status}"


def _too_late(sim: Simulation, call: Callable[[], Any]) -> str:
    try:
        call()
    except RefusedError as refused:
        fits = refused.code in ("NOT_WAITING", "UNKNOWN_PROPOSAL")
        hold("WP-decision", f"a late answer was refused as {refused.code}", fits or sim.is_fault(refused))
        return refused.code
    hold("WP-decision", "an answer without a question was accepted", False)
    return ""


def _fly(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    now = worker.protocol.now_ms()
    due = [at for at, one in enumerate(worker.protocol.flying) if not isinstance(one, Task) or one.not_before <= now]
    at = _pick(rendered["which"], due)
    if at is None:
        return NOTHING
    one = worker.protocol.flying[at]
    task = one if isinstance(one, Task) else one.task
    sim.outside.weather = rendered["weather"]
    try:
        worker.protocol.go_on(at, record=rendered["record"])
    finally:
        sim.outside.weather = "fair"
    rendering_of = "made" if one is task else "recorded"
    return f"{rendering_of} {task.requirement.type} of {task.proposal_id}, {rendered['weather']}"


def _time(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    sim.time.now_ms += rendered["ms"]
    return f"it is {rendered['ms']} ms later"


def _jump(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    sim.clocks[sim.workers.index(worker)].off_ms = rendered["off_ms"]
    return f"the clock of {worker.name} is {rendered['off_ms']} ms off"


def _crash(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    sim.crash(worker, known=rendered["known"])
    return f"{worker.name} is dead"


def _fault(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    if rendered["fault"] == LOST_WAKES:
        worker.protocol.loses_wakes = True
        return f"the next wake-ups of {worker.name} are lost"
    sim.store.fault = rendered["fault"]
    return f"the next commit meets {rendered['fault']}"


def _settle(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    worker.protocol.settle()
    return "settled"


def _resolve(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    doubts = [(name, effect) for name, one in sim.model.open.items() for effect in sorted(one.doubtful)]
    found = _pick(rendered["which"], doubts)
    if found is None:
        return NOTHING
    name, effect = found
    key = f"{sim.model.open[name].intent['intentId']}:{effect}"
    happened = sim.outside.done[key] > 0
    more = {"value": sim.outside.value_of(key)} if happened else {}
    choice = "happened" if happened else "retry"
    people = [player.actor_id for player in sim.scenario.actors]
    worker.protocol.resolve(name, effect, choice, by=people[0], reason="the outside was asked", **more)  # type: ignore[arg-type]
    return f"{effect[:8]} of {name}: {choice}"


def _cancel(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    name = _pick(rendered["which"], [name for name, one in sim.model.open.items() if one.decision is not None])
    if name is None:
        return NOTHING
    worker.protocol.cancel(name, by="operator", reason="for the simulation")
    return f"{name} is called off"


def _branch(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    world = _pick(rendered["which"], list(sim.model.worlds.worlds))
    assert world is not None
    fits = sim.model.fits(None, world)
    try:
        worker.world.create_branch(rendered["name"], world)
    except RefusedError as refused:
        hold("WP-schema", "a world that fits was refused", refused.code != "DATA_DOES_NOT_FIT" or not fits)
        raise
    return f"{rendered['name']} begins at {world[:8]}"


def _switch(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    name = _pick(rendered["which"], list(sim.model.worlds.heads))
    assert name is not None
    worker.world.switch_branch(name)
    return f"{name} is the active branch"


def _lease(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    agent = sim.scenario.actors[rendered["actor"] % len(sim.scenario.actors)].actor_id
    session = f"{agent}-{rendered['session']}"
    scope = [_claim(predicate, resource) for predicate, resource in rendered["scope"]]
    manifest = {"ver": "1.0", "agent_id": agent, "session_id": session, "scope": scope}
    queue, wait = rendered["queue"], rendered["wait"]
    desk = worker.world.leases.desk
    verdict = desk.request(manifest, by=agent, ttl_ms=rendered["ttl"], queue=queue, wait_ms=wait if queue else None)
    return f"{verdict.status} for {session}"


def _claim(predicate: str, resource: str) -> dict[str, str]:
    """Return an entry of a manifest's scope; RENAMES has a new name too."""
    claim = {"predicate": predicate, "resource": resource}
    if predicate != "RENAMES":
        return claim
    place, ending = resource.removesuffix("/*"), "/*" if resource.endswith("/*") else ""
    return claim | {"to": f"{place}-renamed{ending}"}


def _timed(sim: Simulation, which: int) -> str | None:
    """Return an active lease that no proposal holds."""
    leases = sim.model.leases.active
    return _pick(which, [name for name, lease in leases.items() if lease.expires is not None])


def _beat(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    return _with_lease(sim, worker, rendered, "heartbeat")


def _release(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    return _with_lease(sim, worker, rendered, "release")


def _with_lease(sim: Simulation, worker: Worker, rendered: Mapping[str, Any], how: str) -> str:
    name = _timed(sim, rendered["which"])
    if name is None:
        return NOTHING
    agent, session = sim.model.leases.active[name].owner
    session = "not-the-holder" if rendered["stranger"] else session
    call = getattr(worker.world.leases.desk, how)
    try:
        states = call([name], agent_id=agent, session_id=session)
    except RefusedError as refused:
        is_gone = refused.code in ("LEASE_NOT_ACTIVE", "UNKNOWN_LEASE")
        fits = is_gone or (rendered["stranger"] and refused.code == "NOT_THE_HOLDER")
        hold("KP-4b", f"{how} was refused as {refused.code}", fits or sim.is_fault(refused))
        return refused.code
    has_ended = how == "release" and states[name] != "Released"
    hold("KP-4b", f"{how} was taken from a stranger", has_ended or not rendered["stranger"])
    return f"{how} of {name}"


def _revoke(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    name = _pick(rendered["which"], list(sim.model.leases.active))
    if name is None:
        return NOTHING
    worker.world.leases.desk.revoke([name], by="operator", reason="for the simulation")
    return f"{name} is revoked"


def _withdraw(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    waiting = [name for name in sim.model.leases.waiting if name not in sim.model.processes]
    name = _pick(rendered["which"], waiting)
    if name is None:
        return NOTHING
    gone = worker.world.leases.desk.withdraw(name)
    return f"{name} left the queue" if gone else f"{name} did not wait any more"


def _bind(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    binding = _pick(rendered["which"], sim.scenario.bindings)
    actors = sim.scenario.actors
    actor = actors[rendered["actor"] % len(actors)].actor_id
    if binding is None:
        return NOTHING
    worker.world.bind(actor, binding)
    return f"{actor} is bound by {binding['kind']}"


def _policy(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    name = _pick(rendered["which"], sim.scenario.spare)
    if name is None:
        return NOTHING
    if name in sim.model.policies:
        worker.protocol.run(lambda work: retire_policy(work, name, "operator", "for the simulation"))
        return f"{name} is retired"
    worker.world.adopt_policy(name)
    return f"{name} is adopted"


def _shadow(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    names = [None, *(policy.name for policy in sim.scenario.policies)]
    name = names[rendered["which"] % len(names)]
    actors = [sim.scenario.actors[at % len(sim.scenario.actors)].actor_id for at in rendered["actors"]]
    bindings = sim.model.bindings
    judges = {bindings[one].get("policy") for one in actors or bindings if one in bindings} - {None}
    try:
        is_new = worker.world.shadow(name, actors=actors)
    except RefusedError as refused:
        fits = refused.code == "POLICY_IN_USE" and judges == {name}
        hold("CARD-policy", f"a shadow was refused as {refused.code}", fits or sim.is_fault(refused))
        return refused.code
    hold("CARD-policy", f"{name} shadows itself", not is_new or name is None or judges != {name})
    return f"{name} shadows {', '.join(actors) or 'all'}"


def _adopt(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    """Restart the worker with another domain and adopt it; undo this if it is refused."""
    schema = list(sim.editions)[rendered["which"] % len(sim.editions)]
    running = any(one.decision is not None for one in sim.model.open.values())
    fits, is_other = sim.model.adoptions.can_adopt(sim.model, schema), schema != sim.model.worlds.schema
    carries = rendered["which"] // len(sim.editions) % 2 == 1
    worker = sim.restart(worker, sim.editions[schema].domain)
    try:
        adopted = worker.protocol.adopt_domain(by="operator", open_proposals="carry_over" if carries else "supersede")
    except RefusedError as refused:
        expected = "OPEN_PROPOSALS" if running else "DATA_DOES_NOT_FIT" if not fits else ""
        what = f"a domain was refused as {refused.code}, expected was {expected or 'that it is adopted'}"
        hold("WP-schema", what, refused.code == expected or sim.is_fault(refused))
        sim.restart(worker)
        return refused.code
    hold("WP-schema", "a domain was adopted that must not be", not is_other or (fits and not running))
    hold("WP-schema", "a domain in force was adopted again", adopted == is_other)
    return f"{worker.name} runs domain {schema[:8]}"


ACTS: Final[Mapping[str, Act]] = {
    "submit": _submit,
    "batch": _batch,
    "again": _again,
    "bad": _bad,
    "receive": _receive,
    "decide": _decide,
    "fly": _fly,
    "time": _time,
    "jump": _jump,
    "crash": _crash,
    "fault": _fault,
    "settle": _settle,
    "resolve": _resolve,
    "cancel": _cancel,
    "branch": _branch,
    "switch": _switch,
    "lease": _lease,
    "beat": _beat,
    "release": _release,
    "revoke": _revoke,
    "withdraw": _withdraw,
    "bind": _bind,
    "policy": _policy,
    "shadow": _shadow,
    "adopt": _adopt,
    "program": run_program,
    **EXTERNAL_ACTS,
    **CALL_ACTS,
}
"""What each kind of step does; it returns its result in a few words."""
