"""``RemoteReader``: the reading methods of a realm on a server; ``RemoteRealm`` adds the commands."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.realm_events import WorldSealed
from world.klis.triple import read_triple
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import FrozenDict, freeze
from world.model.short_repr import short_repr
from world.model.snapshot import ErrorValue, Meta, Snapshot, System
from world.pipeline.preparation.preview import ApprovalPreview
from world.read_models.archive import WorldRow
from world.read_models.blame import Blame
from world.read_models.live.offered_effects import OfferedEffect
from world.state.branches import Branch
from world.state.proposal import Proposal, fold_proposal
from worldprotocol.api.past_values import PastValues
from worldprotocol.api.read_only import unknown_branch
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.connection import HISTORY, RealmRequest, ServerConnection, error_of, resource
from worldprotocol.api.remote.event_forms import read_event, read_logged

__all__ = ["RemoteReader"]

HEAD: Final = "HEAD"
"""Name of the head of the active branch in a path."""

PAGE: Final = 500
"""Entries of one answer to a list."""

VERIFY_PAUSE_S: Final = 0.2
"""Time between two looks at a verification, in seconds."""


class RemoteReader(Realm):
    """Read access to a realm on a server, as the right of the caller permits.

    Args:
        connection: the client of the realm.
    """

    def __init__(self, connection: ServerConnection) -> None:
        """Use a connection; nothing is asked yet."""
        self._connection = connection

    def __repr__(self) -> str:
        return short_repr(self, f"{self._connection.address.text}#{self._connection.realm}", "on a server")

    @property
    def is_read_only(self) -> bool:
        """Whether this realm only reads; the rights of the caller decide about each command."""
        return False

    # Proposals

    def proposal(self, proposal_id: str) -> Proposal:
        """Return a proposal, open or ended.

        Raises:
            RefusedError: ``UNKNOWN_PROPOSAL``, also where the caller may not read it; ``RIGHT_MISSING`` where rules of
                redaction hide one of its events.
        """
        return self._proposal_of(self._connection.get(resource("proposals", proposal_id), HISTORY))

    def proposals(
        self,
        *,
        actor: str | None = None,
        status: str | None = None,
        branch: str | None = None,
    ) -> Iterator[Proposal]:
        """Yield the proposals that the caller may read, in the order of submission; see ``RealmReader.proposals``."""
        after: int | None = 0
        while after is not None:
            page = self._connection.get(
                "/proposals",
                {"actor": actor, "status": status, "branch": branch, "after": after, "limit": PAGE, **HISTORY},
            )
            for form in page["proposals"]:
                if not form.get("redacted"):
                    yield self._proposal_of(form)
            after = page["next"]

    def inbox(self) -> list[Proposal]:
        """Return the proposals that wait for the caller, oldest first; at most 500, those with the earliest deadline.

        They are those that wait for anybody where the caller has the right reader or auditor alone.

        Raises:
            RefusedError: ``RIGHT_MISSING``.
        """
        waiting = [self._proposal_of(entry) for entry in self.inbox_entries()]
        return sorted(waiting, key=lambda one: (one.submitted.at, one.proposal_id))

    def inbox_entries(self) -> list[dict[str, Any]]:
        """Return what waits for the caller with the rules' outcomes, the preview, and ``shown`` for ``decide``.

        Raises:
            RefusedError: ``RIGHT_MISSING``.
        """
        entries: list[dict[str, Any]] = self._connection.get("/inbox", {"limit": PAGE, **HISTORY})["inbox"]
        return entries

    def _proposal_of(self, form: Mapping[str, Any]) -> Proposal:
        """Return the proposal of an answer, folded from its events."""
        history = form.get("history")
        if not history:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                f"Proposal {form['proposalId']} is {form.get('status', 'not shown')}; rules of redaction hide some of "
                "its events from the caller, which needs the right reader without redaction, or auditor.",
                proposal_id=form["proposalId"],
            )
        proposal: Proposal | None = None
        for event in history:
            proposal = fold_proposal(proposal, read_logged(event))  # type: ignore[arg-type]  # none is hidden
        assert proposal is not None
        return proposal

    def preview(self, proposal_id: str) -> ApprovalPreview:
        """Return what the approval of a waiting proposal would do; nothing is recorded, and no effect is performed.

        Raises:
            RefusedError: ``NOT_WAITING``, ``SCHEMA_MISMATCH``, ``RIGHT_MISSING``; an approver without the right reader
                uses ``inbox_entries``.
        """
        form = self._connection.get(resource("proposals", proposal_id) + "/preview")
        return ApprovalPreview(
            world=form["onWorld"],
            status=form["status"],
            before=freeze(form["before"]),
            after=freeze(form["after"]),
            error=None if form["error"] is None else ErrorValue.from_wire(form["error"]),
            effects=tuple((one["type"], freeze(one["params"])) for one in form["effects"]),
            leases=tuple(read_triple(one["predicate"], one["resource"]) for one in form["leases"]),
        )

    # Worlds and branches

    def branch(self, name: str | None = None) -> Branch:
        """Return a branch; None is the active one.

        Raises:
            RefusedError: ``UNKNOWN_BRANCH``, ``RIGHT_MISSING``.
        """
        branches = self._branches()
        for one in branches:
            if one["name"] == name or (name is None and one["active"]):
                return Branch(one["name"], one["head"], one["tip"])
        raise unknown_branch(name, [one["name"] for one in branches])

    def branches(self) -> list[Branch]:
        """Return all branches in order of creation."""
        return [Branch(one["name"], one["head"], one["tip"]) for one in self._branches()]

    def _branches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._connection.get("/branches")["branches"]
        return found

    def worlds(self, most: int = 100) -> Iterator[WorldRow]:
        """Yield at most ``most`` worlds, newest first."""
        before: int | None = None
        while most > 0:
            rows = self._connection.get("/worlds", {"limit": min(most, PAGE), "before": before})["worlds"]
            for one in rows:
                yield WorldRow(
                    one["worldId"], one["parent"], one["height"], one["position"], one["branch"], one["outcome"]
                )
            if len(rows) < min(most, PAGE):
                return
            most, before = most - len(rows), rows[-1]["position"]

    def sealed(self, world_id: str | None = None) -> WorldSealed:
        """Return the event that sealed a world; None is the active branch's head."""
        position = self._connection.get(resource("worlds", world_id or HEAD))["position"]
        [form] = self._connection.get("/log", {"after": position - 1, "limit": 1})["events"]
        event = read_logged(form)
        if not isinstance(event, WorldSealed):
            raise RefusedError(
                ErrorCode.RIGHT_MISSING, "Rules of redaction hide the world from the caller.", position=position
            )
        return event

    def data(self, world_id: str | None = None) -> FrozenDict:
        """Return the data of any world; None is the active branch's head."""
        value: FrozenDict = freeze(self._connection.get(resource("worlds", world_id or HEAD) + "/state")["value"])
        return value

    def computed(self, world_id: str | None = None) -> PastValues:
        """Return the computed values of a world by its own schema, as the program of the server evaluates them."""
        form = self._connection.get(resource("worlds", world_id or HEAD) + "/computed")
        return PastValues(freeze(form["values"]), tuple(form["byOtherCode"]), tuple(form["missing"]), form["why"])

    def snapshot(self, world_id: str | None = None) -> Snapshot:
        """Return the snapshot of any world with its computed values; see ``RealmReader.snapshot``."""
        sealed = self.sealed(world_id)
        error = sealed.error
        system = System("idle") if error is None else System("error", error, (error,))
        computed = self.computed(sealed.world_id).of_then()
        meta = Meta(sealed.height, sealed.at, "", sealed.schema_hash)
        return Snapshot(self.data(sealed.world_id), computed, system, None, meta)

    def blame(self, path: str, world_id: str | None = None) -> Blame:
        """Return the last change of a path, and the decision that allowed it.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``, ``INVALID_PATH``, ``RIGHT_MISSING``.
        """
        form = self._connection.get(resource("worlds", world_id or HEAD) + "/blame", {"path": path, **HISTORY})
        world: WorldSealed = read_event(form["world"])
        wanted = {canonical_bytes(one) for one in form["patches"]}
        return Blame(
            path=form["path"],
            value=freeze(form["value"]),
            world=world,
            patches=tuple(one for one in world.patches if canonical_bytes(one.to_wire()) in wanted),
            proposal=None if form["history"] is None else self._proposal_of({"proposalId": "", **form}),
            projection=None if form["projection"] is None else read_event(form["projection"]),
        )

    def diff(self, world_id: str, other: str = HEAD) -> dict[str, Any]:
        """Return the differences of two worlds with the proposals that caused them, as ``worldctl diff --json``.

        Args:
            world_id: the first world; ``HEAD`` is the head of the active branch.
            other: the second world.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``, ``RIGHT_MISSING``.
        """
        found: dict[str, Any] = self._connection.get(resource("worlds", world_id) + "/diff", {"with": other})
        return found

    # The log

    def events(self, after: int = 0, upto: int | None = None) -> Iterator[tuple[int, Any]]:
        """Yield ``(position, event)`` in log order.

        An event that rules of redaction hide from the caller is a ``HiddenEvent``.

        Args:
            after: position of the last event that is not wanted.
            upto: position of the last event that is wanted; None is the end of the log.

        Raises:
            RefusedError: ``RIGHT_MISSING``.
        """
        end = self._connection.get("")["position"] if upto is None else upto
        while after < end:
            forms = self._connection.get("/log", {"after": after, "limit": min(PAGE, end - after)})["events"]
            for form in forms:
                yield form["position"], read_logged(form)
            if not forms:
                return
            after = forms[-1]["position"]

    def checkpoint(self) -> str:
        """Return the newest tree head as the text of a checkpoint, signed where the server has a key."""
        return self._connection.send(RealmRequest(method="GET", path="/checkpoint")).text

    def receipt(self, kind: str, subject_id: str) -> dict[str, Any]:
        """Return the receipt of a thing by its id, JSON.

        Args:
            kind: ``proposal``, ``intent``, ``decision``, ``world`` or ``verdict``.
            subject_id: its id.

        Raises:
            RefusedError: ``NOT_FOUND``, ``RIGHT_MISSING``, and the codes of the kinds.
        """
        found: dict[str, Any] = self._connection.get(resource(f"receipts/{kind}", subject_id))
        return found

    def verify(self) -> dict[str, Any]:
        """Verify the log on the server, and return the report when it has ended.

        Raises:
            RefusedError: ``RIGHT_MISSING``, and what ended the verification.
        """
        job = self._connection.post("/verify", {})
        while job["status"] == "running":
            time.sleep(VERIFY_PAUSE_S)
            job = self._connection.get("/verify")
        if job["error"] is not None:
            raise error_of(job["error"]["code"], job["error"]["message"], {})
        report: dict[str, Any] = job["report"]
        return report

    # The registry

    def actors(self) -> dict[str, tuple[ActorRef, dict[str, Any] | None]]:
        """Return the registered actors with their bindings, by id."""
        found = self._connection.get("/actors")["actors"]
        bindings = [one.pop("binding") for one in found]
        return {
            one["actorId"]: (ActorRef.from_wire(one), binding) for one, binding in zip(found, bindings, strict=True)
        }

    def policies(self) -> list[dict[str, Any]]:
        """Return the policies in force with their rules, JSON."""
        found: list[dict[str, Any]] = self._connection.get("/policies")["policies"]
        return found

    def keys(self) -> list[dict[str, Any]]:
        """Return the registered keys of agents, JSON."""
        found: list[dict[str, Any]] = self._connection.get("/keys")["keys"]
        return found

    def runs(self) -> list[dict[str, Any]]:
        """Return the open governed runs, JSON."""
        found: list[dict[str, Any]] = self._connection.get("/runs")["runs"]
        return found

    def offered_effects(self) -> list[OfferedEffect]:
        """Return the offered effects that wait for workers, are claimed, or are in doubt, the first requested first."""
        return [_offered(one) for one in self._connection.get("/effects")["effects"]]


def _offered(form: Mapping[str, Any]) -> OfferedEffect:
    return OfferedEffect(
        proposal_id=form["proposalId"],
        actor_id=form["actorId"],
        action=form["action"],
        requirement_id=form["requirementId"],
        effect=form["effect"],
        params=freeze(form["params"]),
        state=form["state"],
        requested_at=form["requestedAt"],
        since=form["since"],
        claimable_from=form.get("claimableFrom", 0),
        idempotent=form["idempotent"],
        workspace=form.get("workspace"),
        failures=form["failures"],
        worker=form.get("worker"),
        token=form.get("token"),
        deadline=form.get("deadline"),
    )
