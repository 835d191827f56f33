"""The ledger of leases, written from docs/reference/log-format.md alone: see ``tests.second_implementation``."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from tests.second_forms import must

NUMBERS = {
    *("max_triples", "max_resource_chars", "max_depth", "min_subtree_depth", "max_waiting", "max_named_conflicts"),
    *("default_ttl_ms", "max_ttl_ms", "max_hold_ms", "backoff_ms", "max_backoff_ms", "max_signature_age_ms"),
    *("max_proposal_retries", "manifest_rules", "wake_rules", "max_clock_ahead_ms"),
}
PREDICATES = {"PROVIDES", "CONSUMES", "MUTATES", "DELETES", "DEPENDS_ON", "RENAMES"}
KINDS = dict.fromkeys(("FILE", "API_ENDPOINT", "STATE"), "path") | {"URL": "url"}
KINDS |= dict.fromkeys(
    ("SYMBOL", "DATABASE_TABLE", "CONFIG_KEY", "DB", "ENV", "PROCESS", "COMMAND", "CONTENT"), "opaque"
)
SWITCHES = {"accept_priority", "lower_case", "normal_form"}
TEXTS = {"administrators", "authentication"}
State = Mapping[str, Any]


CHANGING = {"PROVIDES", "MUTATES", "DELETES", "RENAMES"}


class Grant(NamedTuple):
    """The verdict behind a lease, whether there is a backup, and in which workspace."""

    verdict: str
    backup: bool
    workspace: str | None


class Leases:
    """Who is registered, who holds what, and who waits."""

    def __init__(self, once: Callable[[str, str], None]) -> None:
        """Begin with nothing; ``once`` takes ids in that must not come twice."""
        self.once = once
        self.are_needed = False
        self.max_hold = 7 * 24 * 3_600_000
        self.kinds = KINDS
        self.agents: set[str] = set()
        self.keys: dict[str, tuple[str, bytes] | None] = {}  # agent and key; None once revoked
        self.signature_age = 300_000
        self.signed_from = 0
        self.signers: set[str] = set()
        self.authentication = "open"
        self.leases: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, tuple[str, str]] = {}
        self.died: dict[str, tuple[str, str]] = {}  # requests of proposals that what is freed wakes
        self.dies: dict[tuple[str, str], int] = {}
        self.wake_rules = 1
        self.most_dies = 30
        self.token = 0
        self.time = 0
        self.confirmed: int | None = None
        self.workspace: str | None = None

    def take_time(self, topic: str, state: State) -> None:
        """Let lease time go on: to the time of an event of the stream ``klis``, unless that is earlier."""
        if topic == "clock.confirmed":
            must(state["leaseTime"] == self.time, "lease time was another")
            self.time = state["at"]
        else:
            self.time = max(self.time, state["at"])

    def holder_of(self, state: State) -> str | None:
        """Return the agent that holds the lease of an event; None where there is no such lease."""
        held = self.leases.get(state["leaseId"])
        return None if held is None else held["holder"][0]

    def held_by(self, agent: str, session: str) -> set[Grant]:
        """Return the verdicts that granted what a session holds, each with its backup."""
        return {one["grant"] for one in self.leases.values() if one["holder"] == (agent, session)}

    def decided(self, agent: str, proposal: str, state: State) -> set[Grant]:
        """Compare a decision with the verdict that granted the leases of its proposal, and return that."""
        held = self.held_by(agent, proposal)
        must({one.verdict for one in held} == {state.get("verdictId")} - {None}, "not the verdict of its leases")
        must(state.get("backup") in (None, *(one.backup for one in held)), "not what the verdict says of backups")
        must({state.get("workspace")} == ({one.workspace for one in held} or {None}), "not where the backup is")
        return held

    def on_workspace_registered(self, state: State) -> None:
        """Take the realm's workspace in."""
        must(state["workspaceId"] != self.workspace, "registered already")
        self.workspace = state["workspaceId"]

    def check_backup(self, state: State) -> None:
        """Check that what may be changed is backed up in the realm's workspace, once there is one."""
        backup, workspace = state.get("backup", False), state.get("workspace")
        must(workspace is None or backup, "a workspace without a backup")
        if self.workspace is None or state["status"] != "Granted":
            return
        must(not backup or workspace == self.workspace, "a backup elsewhere")
        of_files = [one for one in state.get("leases", ()) if one["resource"].startswith("FILE:")]
        must(backup or not any(one["predicate"] in CHANGING for one in of_files), "files without a backup")

    def on_klis_configured(self, state: State) -> None:
        """Let leases be needed from here on."""
        for name, value in state["settings"].items():
            must(name in NUMBERS | SWITCHES | TEXTS, "no setting")
            if name in NUMBERS:
                least = 0 if name == "min_subtree_depth" else 1
                must(type(value) is int and least <= value < 2**53, "a setting that is no such number")
            else:
                must(type(value) is (bool if name in SWITCHES else str), "a setting of a wrong type")
        self.authentication = state["settings"].get("authentication", "open")
        must(self.authentication in ("signed", "channel", "open"), "no way of authentication")
        must(state["settings"].get("manifest_rules", 1) in (1, 2, 3), "unknown rules")
        self.wake_rules = state["settings"].get("wake_rules", 1)
        must(self.wake_rules in (1, 2), "unknown rules")
        self.most_dies = state["settings"].get("max_proposal_retries", 30)
        self.are_needed = True
        self.kinds = KINDS | {
            name: "other" if told.get("authority") else told["kind"] for name, told in state.get("types", {}).items()
        }
        self.max_hold = state["settings"].get("max_hold_ms", self.max_hold)
        self.signature_age = state["settings"].get("max_signature_age_ms", 300_000)

    def check_triple(self, told: State) -> None:
        """Check that a triple can be one."""
        scheme, colon, name = told["resource"].partition(":")
        must(told["predicate"] in PREDICATES and colon, "no triple")
        must(told.get("confidence", "High") in ("High", "Medium", "Low"), "no confidence")
        kind = self.kinds[scheme]
        must(kind != "path" or name.startswith("/"), "no path")
        must(kind != "url" or "/" in name.partition("://")[2], "no URL")

    def on_agent_registered(self, state: State) -> None:
        """Take an agent in."""
        must(state["agentId"] not in self.agents, "registered twice")
        self.agents.add(state["agentId"])

    def on_key_registered(self, state: State) -> None:
        """Take a key in."""
        must(state["keyId"] not in self.keys, "registered twice")
        self.keys[state["keyId"]] = state["agentId"], base64.b64decode(state["publicKey"])
        self.signers.add(state["agentId"])

    def on_key_revoked(self, state: State) -> None:
        """Take a key out of force."""
        must(self.keys.get(state["keyId"]), "not in force")
        self.keys[state["keyId"]] = None

    def check_channel(self, state: State, runs: Mapping[str, str], proposals: Collection[str]) -> None:
        """Check that a manifest was authenticated; ``runs`` are the open ones with their agents."""
        if state.get("manifest") is None or self.authentication == "open":
            return
        channel, agent = state.get("channel") or {}, state["agentId"]
        kind = channel.get("kind")
        if kind == "signed":
            must(channel.get("keyId") in self.keys, "no key")
        elif kind == "engine":
            must(state["requestId"] == state["sessionId"] and state["requestId"] in proposals, "no proposal")
        elif kind == "run":
            must(runs.get(channel.get("runId", "")) == agent, "no run of the agent")
        else:
            must(kind == "vouched" and self.authentication == "channel", "not signed")
            must(channel.get("by") == agent and agent not in self.signers, "nobody may vouch for it")

    def on_verdict_given(self, state: State) -> None:
        """Grant leases, or let a request wait."""
        self.once("verdict", state["verdictId"])
        name, status = state["requestId"], state["status"]
        must(state["agentId"] in self.agents, "not registered")
        must(status in ("Granted", "Wait", "Die"), "no verdict")
        self.check_backup(state)
        must(state["cause"] in ("request", "queue", "wake"), "no cause")
        if state["cause"] == "wake":
            must(self.died.get(name) == (state["agentId"], state["sessionId"]) and status != "Die", "it did not die")
        self.died.pop(name, None)
        holder = self.waiting.get(name, (state["agentId"], state["sessionId"]))
        for lease in state.get("leases", ()):
            self.once("lease", lease["leaseId"])
        if status != "Wait":
            self.waiting.pop(name, None)
        elif state.get("queued"):
            must(name not in self.waiting, "queued twice")
            for told in state.get("wanted", ()):
                self.check_triple(told)
            self.waiting[name] = holder
        elif state.get("wanted") and self.wake_rules == 2:
            self.keep(state, holder)
        if status == "Die":
            self.let_die(state, holder)
        if status != "Granted":
            return
        self.dies.pop(holder, None)
        for lease in state.get("leases", ()):
            must(lease["token"] > self.token, "out of order")
            self.check_triple(lease)
            self.token, ttl = lease["token"], state.get("ttlMs")
            self.leases[lease["leaseId"]] = {
                "holder": holder,
                "grant": Grant(state["verdictId"], state.get("backup", False), state.get("workspace")),
                "ends": None if ttl is None else state["at"] + min(ttl, self.max_hold),
                "ttl": ttl,
                "granted": state["at"],
                "hold": self.max_hold,
            }

    def let_die(self, state: State, holder: tuple[str, str]) -> None:
        """Keep the request of a proposal that died, unless it died too often; it says what it wants when it is new."""
        self.dies[holder] = self.dies.get(holder, 0) + 1
        of_proposal = self.wake_rules == 2 and state.get("ttlMs") is None
        must(bool(state.get("wanted")) is (of_proposal and state["cause"] == "request"), "not what is wanted")
        self.keep(state, holder if of_proposal else None)

    def keep(self, state: State, holder: tuple[str, str] | None) -> None:
        """Keep the request of a holder for what is freed, unless the session died too often."""
        for triple in state.get("wanted", ()):
            self.check_triple(triple)
        if holder is not None and self.dies.get(holder, 0) <= self.most_dies:
            self.died[state["requestId"]] = holder

    def on_lease_renewed(self, state: State) -> None:
        """Let a lease live longer."""
        lease = self.leases.get(state["leaseId"], {"ends": None})
        must(lease["ends"] is not None and state["at"] <= lease["ends"], "not in force")
        lease["ends"], lease["ttl"] = state["expiresAt"], state["ttlMs"]

    def ended(self, state: State, has_expired: bool = False) -> Iterator[dict[str, Any]]:
        """End leases and yield them."""
        for name in state["leaseIds"]:
            lease = self.leases.pop(name, None)
            must(lease is not None, "not in force")
            assert lease is not None
            must((lease["ends"] is not None and state["at"] > lease["ends"]) is has_expired, "at a wrong time")
            yield lease

    def on_clock_confirmed(self, state: State) -> None:
        """Count what ends by lease time from the confirmed time on, where lease time was later."""
        self.confirmed = state["at"]
        if state["leaseTime"] <= state["at"]:
            return
        self.signed_from = state["at"]
        for lease in self.leases.values():
            early = max(0, lease["granted"] - state["at"])
            lease["granted"] -= early
            if lease["ends"] is not None:
                lease["ends"] = min(lease["ends"], state["at"] + lease["ttl"], lease["granted"] + lease["hold"])

    def on_lease_released(self, state: State) -> None:
        """Let a holder give leases back."""
        for lease in self.ended(state):
            must(lease["holder"] == (state["agentId"], state["sessionId"]), "not the holder")

    def on_lease_expired(self, state: State) -> None:
        """Let leases end by their time."""
        list(self.ended(state, has_expired=True))

    def on_lease_revoked(self, state: State) -> None:
        """Take leases away."""
        list(self.ended(state))

    def on_request_withdrawn(self, state: State) -> None:
        """Let a request leave the queue."""
        had_died = self.died.pop(state["requestId"], None)
        must(self.waiting.pop(state["requestId"], None) or had_died, "it did not wait")
