"""Effects and claims of the second implementation, made from docs/reference/log-format.md alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.second_forms import hash_of, must
from tests.second_leases import Leases

State = Mapping[str, Any]


class Effects:
    """The effects of the executions of one log; ``tests.second_implementation`` adds the rest."""

    size: int
    schema: str | None
    leases: Leases
    proposals: dict[str, dict[str, Any]]
    left: set[str]

    def open(self, state: State, *statuses: str) -> dict[str, Any]:
        """Return the proposal that an event is about, which is in one of these states."""
        raise NotImplementedError

    def once(self, what: str, name: str) -> None:
        """Take an id in that must not come twice."""
        raise NotImplementedError

    # Callers

    def on_caller_left(self, state: State) -> None:
        """Note the calls whose ends have to follow."""
        self.callers_ended()
        for name in state["calls"]:
            proposal = self.proposals[name]
            is_open = proposal["status"] in ("submitted", "evaluating", "approved", "executing")
            must(is_open and proposal["actor"] == state["actorId"], "not an open call of the actor")
            self.left.add(name)

    def on_left_end(self, state: State, *, is_left: bool = False) -> None:
        """End a call whose caller left; what ends for that reason was named before."""
        must(not is_left or state["proposalId"] in self.left, "no caller left")
        self.left.discard(state["proposalId"])

    def callers_ended(self) -> None:
        """Check that the calls whose callers left have ended."""
        must(not self.left, "a call of a caller that left did not end")

    def hurry(self, proposal: State, now: int) -> None:
        """Let the claims of an actor on its own calls end soon."""
        for name, claim in proposal["claims"].items():
            if proposal["offers"][name][0].get("byActor"):
                claim["deadline"] = min(claim["deadline"], now + 15_000)

    def on_effect_requested(self, state: State) -> None:
        """Compare the id of an effect, and the terms of an offer."""
        proposal, wanted = self.open(state, "executing"), state["requirement"]
        told = {
            "schemaHash": self.schema,
            "intentId": proposal["intent"],
            "actionId": wanted["actionId"],
            "nodePath": wanted["nodePath"],
            "effect": {"name": wanted["type"], "args": wanted["params"]},
        }
        name, offer = wanted["id"], state.get("offer")
        must(hash_of(told) == name, "a wrong id of a requirement")
        must(name not in proposal["doubted"], "an effect in doubt")
        must(name not in proposal["claims"], "an effect that is claimed")
        if offer is not None:
            must(state["deadline"] == 0, "an offer with a deadline")
            must(offer["timeLimitMs"] >= 1 and offer["backoffMs"] >= 1 and offer["retries"] >= 0, "no terms")
        if name in proposal["requested"] and name in proposal["offers"]:
            must((offer, state["idempotent"]) == proposal["offers"][name], "an offer on other terms")
        proposal["offers"].pop(name, None)
        if offer is not None:
            proposal["offers"][name] = offer, state["idempotent"]
        proposal["requested"].add(name)
        proposal["times"][name] = (state["at"], state["deadline"])
        if wanted["type"] == "workspace.restore":
            proposal["rollback"] = name

    def sooner(self, proposal: dict[str, Any], now: int) -> dict[str, int]:
        """Return the deadlines of effects under way, counted anew from a confirmed time, and take them in."""
        found, times, claims = {}, proposal["times"], proposal["claims"]
        for name in proposal["requested"]:
            at, deadline = (claims[name]["at"], claims[name]["deadline"]) if name in claims else times[name]
            if at <= now:
                continue
            found[name] = now + deadline - at if deadline else 0
            if name in claims:
                claims[name] |= {"at": now, "deadline": found[name]}
                times[name] = (min(times[name][0], now), times[name][1])
            else:
                times[name] = (now, found[name])
            count, failed, due = proposal["failures"].get(name, (0, 0, 0))
            if failed > now:
                proposal["failures"][name] = (count, now, now + due - failed)
        return found

    def is_over(self, proposal: State, name: str) -> bool:
        """Return whether an execution may make an effect no more: it was called off, or lost its leases."""
        if proposal["verdict"] is not None and not self.leases.held_by(proposal["actor"], proposal["name"]):
            return True
        return proposal["cancelled"] and proposal.get("rollback") != name

    def on_effect_claimed(self, state: State) -> None:
        """Give an offered effect to one worker."""
        proposal, name = self.open(state, "executing"), state["requirementId"]
        self.once("claim", state["claimId"])
        must(name in proposal["requested"] and name in proposal["offers"], "not offered")
        must(name not in proposal["claims"], "claimed already")
        must(state["token"] == self.size, "a token that is not the position")
        count, _, due = proposal["failures"].get(name, (0, 0, 0))
        must(state["attempt"] == count + 1, "a wrong attempt at the effect")
        must(state["at"] >= due, "before the end of the backoff")
        must(state["deadline"] >= state["at"], "a deadline before the claim")
        must(not self.is_over(proposal, name), "an effect that may not be made any more")
        must(state["proposalId"] not in self.left, "the caller left")
        proposal["claims"][name] = dict(state)

    def holder(self, state: State) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the proposal and the claim that holds the effect of an event about it."""
        proposal = self.open(state, "executing")
        claim = proposal["claims"].get(state["requirementId"])
        must(claim is not None and same(claim, state), "not the claim that holds the effect")
        return proposal, claim

    def claimer_of(self, state: State) -> str | None:
        """Return the actor that was verified when an effect was claimed; without one the name of the worker.

        Of an event about no effect it is the actor of the proposal.
        """
        proposal = self.proposals.get(state["proposalId"], {"claims": {}})
        if "requirementId" not in state:
            proposer: str | None = proposal.get("actor")
            return proposer
        claim = proposal["claims"].get(state["requirementId"])
        if claim is None:
            return None
        named: str = verified_actor(claim) or claim["worker"]
        return named

    def performer_of(self, state: State) -> str | None:
        """Return the actor who alone performs an effect; None where workers do, empty for a drop after the end."""
        proposal = self.proposals.get(state["proposalId"])
        if proposal is None or proposal["status"] != "executing":
            return ""
        offer = proposal["offers"].get(state["requirementId"])
        performer: str = proposal["actor"]
        return performer if offer is not None and offer[0].get("byActor") else None

    def on_effect_extended(self, state: State) -> None:
        """Take in the heartbeat of a worker."""
        proposal, claim = self.holder(state)
        must(state["deadline"] >= state["at"], "a deadline before the heartbeat")
        must(not self.is_over(proposal, state["requirementId"]), "an effect that may not be made any more")
        claim |= {"at": state["at"], "deadline": state["deadline"]}

    def on_effect_lapsed(self, state: State) -> None:
        """Offer an effect again whose worker said nothing in time."""
        proposal, claim = self.holder(state)
        name = state["requirementId"]
        must(state["at"] > claim["deadline"], "before the deadline of the claim")
        may_end = ends_at_limit(proposal["offers"][name][0]) or self.is_over(proposal, name)
        must(proposal["offers"][name][1] or may_end, "not idempotent")
        del proposal["claims"][name]
        proposal["times"][name] = (state["at"], 0)

    def answer(self, proposal: dict[str, Any], state: State) -> dict[str, Any] | None:
        """Compare the claim that a result names with the one that holds the effect, and end it."""
        claim: dict[str, Any] | None = proposal["claims"].pop(state["requirementId"], None)
        told = state.get("claim")
        must((claim is None) is (told is None), "a result without the claim that holds its effect, or of none")
        if claim is not None and told is not None:
            must(same(claim, told) and claim["worker"] == told["worker"], "a result under another claim")
        return claim

    def on_effect_fulfilled(self, state: State) -> None:
        """Take a result in."""
        proposal, name = self.open(state, "executing"), state["requirementId"]
        must(name in proposal["requested"] | proposal["doubted"], "not requested")
        must(name not in proposal["fulfilled"], "fulfilled before")
        must(not state.get("lookedUp") or name in proposal["doubted"], "looked up and not in doubt")
        error = state["result"].get("error")
        attended = proposal["offers"].get(name, ({},))[0].get("attended")
        is_not_called = "claim" not in state and (error or {}).get("code") == "TOOL_NOT_CALLED"
        self.on_left_end(state, is_left=attended is not None and is_not_called)
        must(error is None or "code" in error, "an error without a code")
        self.answer(proposal, state)
        proposal["requested"].discard(name)
        proposal["doubted"].discard(name)
        proposal["failures"].pop(name, None)
        if proposal.get("rollback") != name:
            proposal["fulfilled"].add(name)

    def on_effect_retried(self, state: State) -> None:
        """Take in that an effect will be made again."""
        proposal, name = self.open(state, "executing"), state["requirementId"]
        must(name in proposal["requested"], "not requested")
        claim = self.answer(proposal, state)
        if claim is not None:
            offer, idempotent = proposal["offers"][name]
            must(state["failures"] == claim["attempt"], "a wrong number of failures")
            must(idempotent and state["failures"] <= offer["retries"], "no retry was left")
        proposal["failures"][name] = state["failures"], state["at"], state["due"]

    def on_effect_dropped(self, state: State) -> None:
        """Take in that a result was ignored, which is not that of the worker that holds the effect."""
        claim = self.proposals.get(state["proposalId"], {"claims": {}})["claims"].get(state["requirementId"])
        told = state.get("claim")
        if claim is not None and told is not None:
            is_named = same(claim, told) and claim["worker"] == told["worker"]
            must(not (is_named and verified_actor(claim) == verified_actor(state)), "the result of the holder")

    def on_effect_in_doubt(self, state: State) -> None:
        """Take in that nobody knows."""
        proposal, name = self.open(state, "executing"), state["requirementId"]
        must(name in proposal["requested"] | proposal["doubted"], "not requested")
        claim = proposal["claims"].pop(name, None)
        if name in proposal["offers"] and name in proposal["requested"]:
            must(claim is not None, "an offer that nobody claimed")
            must(claim is None or state["at"] > claim["deadline"], "before the deadline of the claim")
            must(not proposal["offers"][name][1], "idempotent")
            must(not ends_at_limit(proposal["offers"][name][0]), "it ends at its limit")
        proposal["requested"].discard(name)
        proposal["doubted"].add(name)

    def on_effect_resolved(self, state: State) -> None:
        """Take in what somebody said of an effect in doubt."""
        proposal, name = self.open(state, "executing"), state["requirementId"]
        must(name in proposal["doubted"], "not in doubt")
        proposal["doubted"].discard(name)
        proposal["requested"].add(name)


def verified_actor(state: State) -> str | None:
    """Return the actor that the caller of an event was verified as; None where none was."""
    verified = state.get("verified") or {"method": "unauthenticated"}
    return None if verified["method"] == "unauthenticated" else verified["actorId"]


def ends_at_limit(offer: State) -> bool:
    """Return whether a call whose time is over has ended, and is not in doubt."""
    return offer.get("attended") in ("hook", "run")


def stream_of_caller(state: State) -> str:
    """Return the stream of an event of a caller."""
    session = state.get("session")
    return f"caller:{state['actorId']}" if session is None else f"session:{state['actorId']}:{session}"


def same(claim: State, told: State) -> bool:
    """Return whether an event is about a claim, by its id and its token."""
    return bool((claim["claimId"], claim["token"]) == (told["claimId"], told["token"]))
