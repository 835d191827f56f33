"""Parts of a realm on a server: rights and tokens, actions, and executions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Unpack

from projections.availability import Availability
from projections.catalog import ActionCatalog, ProjectedAction
from projections.explanation import Explanation
from world.code.keyword_options import check_names
from world.events.access_events import RightGranted, TokenCreated
from world.model.immutable_json import freeze
from world.state.access import Rights
from worldprotocol.api.actions import Actions, pruning_of
from worldprotocol.api.callers.access import RealmAccess
from worldprotocol.api.host import Hosting
from worldprotocol.api.options import CatalogOptions
from worldprotocol.api.remote.connection import HISTORY, ServerConnection, resource
from worldprotocol.api.remote.elsewhere import refuses_elsewhere
from worldprotocol.api.remote.event_forms import read_event

if TYPE_CHECKING:
    from world.pipeline.recover import Choice
    from world.state.proposal import Proposal
    from worldprotocol.api.remote.realm import RemoteRealm

__all__ = ["RemoteAccess", "RemoteActions", "RemoteHosting", "catalog_of"]


@refuses_elsewhere("Realm.access")
class RemoteAccess(RealmAccess):
    """Rights and tokens of a realm on a server, for auditors and operators.

    Args:
        connection: the client of the realm.
    """

    def __init__(self, connection: ServerConnection) -> None:
        """Use a connection."""
        self._connection = connection

    def rights(self) -> Mapping[str, Rights]:
        """Return the rights in force, by actor id and name of the right; raises ``RefusedError`` ``RIGHT_MISSING``."""
        found: dict[str, dict[str, RightGranted]] = {}
        for one in self._connection.get("/rights")["rights"]:
            granted = RightGranted(
                at=one["since"],
                actor_id=one["actorId"],
                right=one["right"],
                by=one["by"],
                redaction=one["redaction"],
            )
            found.setdefault(granted.actor_id, {})[granted.right] = granted
        return found

    def tokens(self) -> Mapping[str, TokenCreated]:
        """Return the tokens that were not revoked, by id; raises ``RefusedError`` ``RIGHT_MISSING``."""
        created = [read_event(one) for one in self._connection.get("/tokens")["tokens"]]
        return {one.token_id: one for one in created}


@refuses_elsewhere("Realm.actions")
class RemoteActions(Actions):
    """The actions that are available to the caller, as the program of the server decides.

    Args:
        connection: the client of the realm.
    """

    def __init__(self, connection: ServerConnection) -> None:
        """Use a connection."""
        self._connection = connection

    def catalog(self, actor_id: str | None = None, **options: Unpack[CatalogOptions]) -> ActionCatalog:
        """Return the catalog for the caller; see ``Actions.catalog``.

        Args:
            actor_id: the caller, or None, which is the caller too.
            **options: see ``CatalogOptions``.

        Raises:
            RefusedError: ``NOT_THE_VERIFIED_ACTOR``, ``UNKNOWN_BRANCH``, ``UNKNOWN_WORLD``, ``INVALID_VALUE``.
        """
        return catalog_of(self._read(actor_id, options, explain=False))

    def explain(
        self, actor_id: str | None = None, **options: Unpack[CatalogOptions]
    ) -> tuple[ActionCatalog, list[Explanation]]:
        """Return the catalog, and the reason why each action is listed or not; needs the right reader or auditor."""
        form = self._read(actor_id, options, explain=True)
        explanations = [
            Explanation(
                type=one["type"],
                offered=one["offered"],
                availability=_availability_of(one["availability"]),
                why=one["why"],
                predicate=freeze(one["predicate"]),
                reads=freeze(one["reads"]),
                missing=tuple(one["missing"]),
            )
            for one in form["explanations"]
        ]
        return catalog_of(form), explanations

    def _read(self, actor_id: str | None, options: CatalogOptions, *, explain: bool) -> dict[str, Any]:
        check_names(options, CatalogOptions)
        pruning = pruning_of(options)
        form: dict[str, Any] = self._connection.get(
            "/actions",
            {
                "actor": actor_id,
                "mode": options.get("mode"),
                "branch": options.get("branch"),
                "at": options.get("at"),
                "upto": options.get("upto"),
                "all": pruning.policy == "mark_only",
                "certain": not pruning.include_unknown,
                "sort": pruning.sort,
                "max": pruning.max_actions,
                "explain": explain,
            },
        )
        return form


def catalog_of(form: Mapping[str, Any]) -> ActionCatalog:
    """Return the catalog of the answer of ``GET /actions``."""
    actions = [
        ProjectedAction(
            type=one["type"],
            availability=_availability_of(one["availability"]),
            label=one.get("label"),
            description=one.get("description"),
            input_schema=freeze(one.get("inputSchema")),
        )
        for one in form["actions"]
    ]
    return ActionCatalog(form["schemaHash"], form["catalogHash"], tuple(actions))


def _availability_of(form: Mapping[str, Any]) -> Availability:
    status: Literal["available", "unavailable", "unknown"] = form["status"]
    return Availability(status, form.get("reason"))


@refuses_elsewhere("Realm.host")
class RemoteHosting(Hosting):
    """Executions of a realm on a server, for operators.

    Args:
        realm: the realm.
    """

    def __init__(self, realm: RemoteRealm) -> None:
        """Use the connection of a realm."""
        self._realm = realm

    def stuck(self) -> list[dict[str, Any]]:
        """Return the effects in doubt, oldest first; raises ``RefusedError`` ``RIGHT_MISSING``."""
        found: list[dict[str, Any]] = self._realm._connection.get("/effects")["inDoubt"]
        return found

    def resolve(
        self,
        proposal_id: str,
        choice: Choice,
        *,
        by: str,
        reason: str,
        effect: str | None = None,
        value: Any = None,
    ) -> Proposal:
        """Resolve an effect in doubt as the caller, and continue its execution; see ``Hosting.resolve``."""
        body = {"choice": choice, "reason": reason, "effect": effect, "value": value}
        return self._changed(proposal_id, "settle", by, body)

    def cancel(self, proposal_id: str, *, by: str, reason: str) -> Proposal:
        """Cancel an approved execution as the caller; see ``Hosting.cancel``."""
        return self._changed(proposal_id, "cancel", by, {"reason": reason})

    def _changed(self, proposal_id: str, verb: str, by: str, body: dict[str, Any]) -> Proposal:
        realm = self._realm
        realm._check_verified(by)
        path = f"{resource('proposals', proposal_id)}:{verb}"
        return realm._proposal_of(realm._connection.post(path, body, key=realm.new_id(), query=HISTORY))
