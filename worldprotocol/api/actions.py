"""``Realm.actions``: the actions available to an actor in a state.

It reads the log and calls ``projections.catalog``; a realm open for reading is enough. Used by the API, the bridge and
``worldctl``.
Source: intent specification 7.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Unpack
from weakref import WeakKeyDictionary

from projections.catalog import ActionCatalog, CatalogProjector, CatalogRequest, Pruning
from projections.descriptors import ActionDescriptor, descriptors_of, missing_function
from projections.explanation import Explanation, explain_catalog
from projections.tools import ToolSet, tools_of
from world.code.keyword_options import check_names
from world.code.time_limit import TimeLimit
from world.core import Domain, DomainSchema, LocalPredicate, recompute, unchecked_schema
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.realm_events import ActorRegistered, DomainAdopted
from world.limits import Limits
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict
from world.model.snapshot import SnapshotView
from world.read_models.archive import Archive
from world.read_models.decoding import decoded, registry_events
from worldprotocol.api.options import CatalogOptions
from worldprotocol.api.past_values import PastValuesReader
from worldprotocol.api.read_only import unknown_branch

__all__ = ["Actions"]


class Actions:
    """The actions of a realm, seen from one world and by one actor.

    Args:
        archive: archive of the log.
        domain: the loaded domain; without it, or with another schema, the recorded schema is used, and values that
            Python functions compute are unknown.
        limits: ``max_call_ms`` is the time limit of a call of a local predicate.
    """

    def __init__(self, archive: Archive, domain: Domain | None = None, limits: Limits | None = None) -> None:
        """Read a realm's actions."""
        self._archive = archive
        self._domain = domain
        self._projector = CatalogProjector(TimeLimit((limits or Limits()).max_call_ms))

    def catalog(self, actor_id: str | None = None, **options: Unpack[CatalogOptions]) -> ActionCatalog:
        """Return the catalog for an actor; arguments and errors as for ``request``."""
        return self._projector.project_action_catalog(self.request(actor_id, **options))

    def tools(self, actor_id: str | None = None, **options: Unpack[CatalogOptions]) -> ToolSet:
        """Return the catalog as tools of a language model; arguments and errors as for ``request``."""
        return tools_of(self.catalog(actor_id, **options))

    def explain(
        self, actor_id: str | None = None, **options: Unpack[CatalogOptions]
    ) -> tuple[ActionCatalog, list[Explanation]]:
        """Return the catalog, and the reason why each action is listed or not; see ``request``."""
        return explain_catalog(self.request(actor_id, **options), self._projector)

    def request(self, actor_id: str | None = None, **options: Unpack[CatalogOptions]) -> CatalogRequest:
        """Return the input of a catalog.

        Args:
            actor_id: the acting actor; None makes a catalog without an actor, in which conditions on the actor are
                unknown.
            **options: see ``CatalogOptions``.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``UNKNOWN_BRANCH``, ``UNKNOWN_WORLD``, ``INVALID_VALUE``.
        """
        check_names(options, CatalogOptions)
        at, upto, pruning = options.get("at"), options.get("upto"), pruning_of(options)
        actor = None if actor_id is None else self.actor(actor_id, upto)
        world, schema_hash = self.place(options.get("branch"), at)
        if upto is not None:
            schema_hash = self._in_force(upto)
        view = self.view(world, schema_hash) if at is None else self._past_view(world, upto)
        return CatalogRequest(
            schema_hash, view, actor, self._descriptors(schema_hash), options.get("mode", "llm"), pruning
        )

    def actor(self, actor_id: str, upto: int | None = None) -> ActorRef:
        """Return a registered actor, as of now or after event ``upto``.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``.
        """
        if upto is None:
            known = self._archive.peek(lambda realm: realm.actors.get(actor_id))
        else:
            known = None
            for logged in registry_events(self._archive.log, ActorRegistered, upto=upto):
                event = decoded(logged)
                if isinstance(event, ActorRegistered) and event.actor.actor_id == actor_id:
                    known = event.actor
        if known is None:
            period = "" if upto is None else f" up to event {upto}"
            raise RefusedError(
                ErrorCode.UNKNOWN_ACTOR, f"The actor {actor_id!r} was not registered{period}.", actor_id=actor_id
            )
        return known

    def place(self, branch: str | None = None, at: str | None = None) -> tuple[str, str]:
        """Return the id of the world to read, and the hash of the schema to use.

        Raises:
            RefusedError: ``UNKNOWN_BRANCH``, ``UNKNOWN_WORLD``.
        """
        if at is not None:
            return at, self._archive.sealed(at).schema_hash
        active, heads, in_force = self._archive.peek(
            lambda realm: (realm.active, {one.name: one.head for one in realm.branches.values()}, realm.schema_hash)
        )
        name = active if branch is None else branch
        if name not in heads:
            raise unknown_branch(name, heads)
        return heads[name], in_force

    def view(self, world_id: str, schema_hash: str) -> SnapshotView:
        """Return the data of a world and its known computed values."""
        data = self._archive.state(world_id)
        return SnapshotView(data, self.computed(data, schema_hash))

    def _past_view(self, world_id: str, upto: int | None) -> SnapshotView:
        """Return the data of a past world, and the computed values whose code is unchanged."""
        data, reader = self._archive.state(world_id), PastValuesReader(self._archive, self._domain)
        values = reader.of(self._archive.sealed(world_id), data) if upto is None else reader.in_force(upto, data)
        return SnapshotView(data, values.of_then())

    def computed(self, data: FrozenDict, schema_hash: str) -> FrozenDict:
        """Return the computed values of data; without the functions, only those of expressions."""
        domain = self._loaded(schema_hash)
        if domain is not None:
            return recompute(domain, data)
        return PastValuesReader(self._archive, None).by_schema(schema_hash, data).values

    def _descriptors(self, schema_hash: str) -> tuple[ActionDescriptor, ...]:
        domain = self._loaded(schema_hash)
        if domain is None:
            adopted = self._adopted(schema_hash)
            functions = [name.removeprefix(PREDICATE) for name in adopted.sources if name.startswith(PREDICATE)]
            local = {action: LocalPredicate(missing_function, f"{PREDICATE}{action}") for action in functions}
            return descriptors_of(unchecked_schema(adopted.schema), local)
        known = _KNOWN.get(domain)
        if known is None or known[0] is not domain.schema:
            known = _KNOWN[domain] = (domain.schema, descriptors_of(domain))
        return known[1]

    def _in_force(self, upto: int) -> str:
        """Return the hash of the schema that was in force after an event."""
        adopted = [decoded(logged) for logged in registry_events(self._archive.log, DomainAdopted, upto=upto)]
        last = adopted[-1] if adopted else None
        if not isinstance(last, DomainAdopted):
            raise RefusedError(ErrorCode.UNKNOWN_WORLD, f"No domain was in force after event {upto}.")
        return last.schema_hash

    def _loaded(self, schema_hash: str) -> Domain | None:
        if self._domain is None or self._domain.schema.hash == schema_hash:
            return self._domain
        return self._domain.in_form(schema_hash, self._adopted(schema_hash).rules)

    def _adopted(self, schema_hash: str) -> DomainAdopted:
        """Return the last adoption of the schema with this hash."""
        for adopted in reversed(list(self._archive.adopted_domains())):
            if adopted.schema_hash == schema_hash:
                return adopted
        raise RefusedError(ErrorCode.UNKNOWN_WORLD, f"The log holds no schema {schema_hash[:12]}.")


def pruning_of(options: CatalogOptions) -> Pruning:
    """Return the option ``pruning``.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    given = options.get("pruning")
    if isinstance(given, Pruning):
        return given
    return Pruning.read({} if given is None else dict(given) if isinstance(given, Mapping) else given, "$.pruning")


PREDICATE: Final = "available:"
"""Prefix of the functions that decide whether an action is available (``Domain.sources``)."""

_KNOWN: WeakKeyDictionary[Domain, tuple[DomainSchema, tuple[ActionDescriptor, ...]]] = WeakKeyDictionary()
"""Cache of the descriptors of domains; the JSON Schema of a pydantic model is expensive to make."""
