"""Rights, tokens and verified callers, from docs/reference/log-format.md alone: see ``tests.second_implementation``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.second_forms import must

State = Mapping[str, Any]
OPERATOR = {"effect.resolved", "execution.cancelled", "lease.revoked", "branch.created", "branch.switched"}
OPERATOR |= {"right.granted", "right.revoked", "token.created", "token.revoked", "key.registered", "key.revoked"}
OPERATOR |= {"actor.registered", "actor.bound", "policy.adopted", "policy.retired", "shadow.configured"}

CLAIMER = {"effect.claimed", "effect.dropped", "effect.extended", "effect.fulfilled", "effect.retried"}

Named = tuple[Callable[[State], str | None], Callable[[State], str | None]]
"""Who holds what an event is about; and who alone performs its effect, empty where the proposal has ended."""


class Access:
    """Rights of actors and tokens in force."""

    def __init__(self, once: Callable[[str, str], None], actors: Mapping[str, Any]) -> None:
        """Begin with none; ``once`` takes ids that must not come twice."""
        self.once = once
        self.actors = actors
        self.rights: set[tuple[str, str]] = set()
        self.tokens: dict[str, State] = {}

    def on_right_granted(self, state: State) -> None:
        """Grant a right."""
        must(state["actorId"] in self.actors, "not registered")
        must(state.get("redaction") is None or state["right"] == "reader", "only readers have redaction")
        self.rights.add((state["actorId"], state["right"]))

    def on_right_revoked(self, state: State) -> None:
        """Revoke a right."""
        must((state["actorId"], state["right"]) in self.rights, "not granted")
        self.rights.remove((state["actorId"], state["right"]))

    def on_token_created(self, state: State) -> None:
        """Take a token into force."""
        self.once("token", state["tokenId"])
        must(state["actorId"] in self.actors, "not registered")
        must(re.fullmatch("[0-9a-f]{64}", state["digest"]), "no SHA-256")
        self.tokens[state["tokenId"]] = state

    def on_token_revoked(self, state: State) -> None:
        """Take a token out of force."""
        must(self.tokens.pop(state["tokenId"], None) is not None, "not in force")

    def check(self, topic: str, state: State, named: Named) -> None:
        """Check that the verified caller of an event had the right to it."""
        verified = state.get("verified")
        if verified is None or verified["method"] == "unauthenticated":
            return
        actor, needed = verified.get("actorId"), self.needed(topic, state, named)
        must(needed[0] in (None, actor), "another actor was verified")
        held = {right for name, right in self.rights if name == actor}
        must(verified["method"] != "signature" or topic == "proposal.submitted", "a signature of an intent alone")
        if verified["method"] in ("token", "link", "oidc"):
            token = self.tokens.get(verified.get("tokenId", ""), {"actorId": None})
            must(token["actorId"] == actor and state["at"] < token["expiresAt"], "no such token")
            session, way = token.get("session"), verified["method"]
            if session is None:
                must(way != "oidc", "no session of an issuer")
            else:
                stated = way, verified.get("issuer"), verified.get("subject")
                must(stated == (session["method"], session.get("issuer"), session.get("subject")), "another session")
            held &= held if token.get("can") is None else set(token["can"])
        must(held & needed[1], "without the right")

    def needed(self, topic: str, state: State, named: Named) -> tuple[str | None, set[str]]:
        """Return the actor that an event names, and the rights of which its caller needs one."""
        holder_of, performer_of = named
        if topic == "proposal.submitted":
            return state["actor"]["actorId"], {"actor"}
        if topic == "human.answered":
            answer = state["answer"]
            return answer["by"]["actorId"], {"approver", "actor"} if answer["choice"] == "reply" else {"approver"}
        if topic == "verdict.given":
            is_signed = (state.get("channel") or {}).get("kind") == "signed"
            return None if is_signed else state["agentId"], {"actor"}
        if topic == "request.withdrawn":
            return None, {"actor"}
        if topic == "lease.renewed":
            return holder_of(state), {"actor"}
        if topic == "lease.released":
            return state["agentId"], {"actor"}
        if topic in CLAIMER and (performer := performer_of(state)) is not None:
            return (None, {"actor", "worker"}) if topic == "effect.dropped" else (performer, {"actor"})
        if topic in ("effect.claimed", "effect.dropped"):
            return None, {"worker"}
        if topic in CLAIMER:
            return holder_of(state), {"worker"}
        if topic == "caller.left":
            is_own = state["verified"].get("actorId") == state["actorId"]
            return (state["actorId"], {"actor", "operator"}) if is_own else (None, {"operator"})
        if topic == "proposal.superseded":
            return state["by"], {"operator", "actor"} if holder_of(state) == state["by"] else {"operator"}
        must(topic in OPERATOR, "a topic without a caller")
        return state["by"], {"operator"}
