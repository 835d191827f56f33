"""Operations on worlds: the lineage, one world with its state and computed values, differences, blame and bisection."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType, convert, field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, OperationCall, Paged, RequestForm, operation
from worldprotocol.operations.fields import (
    HASH,
    ID,
    NOW,
    WORLD,
    At,
    EventForm,
    History,
    Limit,
    Name,
    Position,
    recorded,
)
from worldprotocol.operations.records import (
    ACTOR,
    PROPOSAL,
    ActorForm,
    ErrorForm,
    LoggedForm,
    ProposalForm,
    ScopeForm,
    SourceForm,
)

HEAD: Final = "HEAD"
"""Name of the head of the active branch."""

NEVER: Final = 2**53

WorldName = Annotated[str, Meta(min_length=1, max_length=200, description="worldId, or HEAD.")]
ValuePath = Annotated[str, Meta(min_length=1, max_length=4_000, description="Dotted path, such as `orders.7.item`.")]
Outcome = Literal["completed", "failed"]


def _world_id(call: OperationCall, named: str, at: str | None = None) -> str:
    """Return a world's id; ``HEAD`` is the head of the active branch, also at a point in the past.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``, and those of ``OperationCall.moment``; ``NOT_FOUND`` for a world that was
            sealed later.
    """
    realm = call.hosted.realm
    if at is None:
        world_id = realm.branch().head if named == HEAD else named
        realm.archive.world(world_id)
        return world_id
    then = call.moment(at)
    world_id = then.world_id() if named == HEAD else named
    then.check_seen(f"World {world_id[:12]} was sealed", realm.archive.world(world_id).position)
    return world_id


class ListWorlds(RequestForm, frozen=True, kw_only=True):
    """Which worlds are wanted, and a point in the past; absent, now."""

    before: Annotated[Position, Meta(description="Only worlds that were sealed before this position.")] = NEVER
    branch: Annotated[Name, Meta(description="Only this line of descent.")] | None = None
    under: Annotated[WorldName, Meta(description="Only descendants of this world.")] | None = None
    depth: Annotated[int, Meta(ge=1, le=16, description="Generations below `under`.")] = 1
    limit: Limit = 50
    at: At | None = None


class PlacedWorld(AnswerForm, frozen=True, kw_only=True):
    """A world and its place in the lineage; `branch` is null where its name is hidden."""

    world_id: str
    parent: str | None
    height: int
    position: int
    branch: str | None
    outcome: Outcome


class ListedWorld(PlacedWorld, frozen=True, kw_only=True):
    """A world with the branches whose head or tip it is."""

    heads: list[str]
    tips: list[str]


class ListedWorlds(AnswerForm, frozen=True, kw_only=True):
    """Worlds, newest first; `next` is `before` of the next page, null after the last one."""

    worlds: list[ListedWorld]
    next: int | None


_ROW: Final = ListedWorld(
    world_id=WORLD, parent=None, height=0, position=6, branch="main", outcome="completed", heads=["main"], tips=[]
)


@operation(
    "worlds.list",
    "GET /worlds",
    "reader auditor",
    page=Paged("worlds", "before"),
    example=(ListWorlds(limit=10), ListedWorlds(worlds=[_ROW], next=None)),
)
def list_worlds(call: OperationCall, request: ListWorlds) -> ListedWorlds:
    """List worlds, newest first, each with the branches whose head or tip it is."""
    from world.read_models.lineage import Heads
    from worldprotocol.api.lookup.lineage_rows import LineageQuery, lineage_row, lineage_rows

    archive, view, at = call.hosted.realm.archive, call.view, request.at
    heads, before = Heads(view.active, dict(view.branches)), request.before
    if at is not None:
        then = call.moment(at)
        heads, before = then.heads(), min(before, then.position + 1)
    under = None if request.under is None else _world_id(call, request.under, at)
    query = LineageQuery(request.limit + 1, before, request.branch, under, request.depth)
    shown = call.visibility.branches(archive)
    if shown is not None and request.branch is not None and request.branch not in shown:
        raise RefusedError(ErrorCode.UNKNOWN_BRANCH, f"There is no branch {request.branch!r} that you may read.")
    rows = lineage_rows(archive, heads, query)
    listed = [lineage_row(row, heads, shown) for row in rows[: request.limit]]
    following = rows[request.limit - 1].position if len(rows) > request.limit else None
    return convert({"worlds": listed, "next": following}, ListedWorlds)


class ReadWorld(RequestForm, frozen=True, kw_only=True):
    """A world, and a point in the past; absent, now."""

    world_id: WorldName
    at: At | None = None


class PatchForm(AnswerForm, frozen=True, kw_only=True):
    """One change of the data; `unset` has no value."""

    op: Literal["set", "unset", "merge"]
    path: str
    value: Any = UNSET


class WorldDetails(PlacedWorld, frozen=True, kw_only=True):
    """A world with its hashes and the patches from its parent; one whose event is hidden has its leaf hash alone."""

    created_by: str | UnsetType | None = UNSET
    created_at: int | None = None
    content_id: str | None = None
    schema_hash: str | None = None
    snapshot_hash: str | None = None
    patches: list[PatchForm] | None = None
    error: ErrorForm | UnsetType | None = UNSET
    redacted: bool | None = None
    leaf: str | None = None


@operation(
    "worlds.read",
    "GET /worlds/{world_id}",
    "reader auditor",
    example=(
        ReadWorld(world_id=HEAD),
        WorldDetails(
            world_id=WORLD,
            parent=None,
            height=0,
            position=6,
            branch="main",
            outcome="completed",
            created_by=None,
            created_at=NOW,
            content_id=HASH,
            schema_hash=HASH,
            snapshot_hash=HASH,
            patches=[],
            error=None,
        ),
    ),
)
def read_world(call: OperationCall, request: ReadWorld) -> WorldDetails:
    """Return a world with the patches from its parent, withheld where its event is hidden from the caller."""
    from worldprotocol.api.lookup.lineage_rows import sealed_row, world_row

    archive = call.hosted.realm.archive
    row = archive.world(_world_id(call, request.world_id, request.at))
    shown, logged = call.visibility.branches(archive), archive.event_at(row.position)
    if any(is_hidden for _, is_hidden in call.visibility.events([logged])):
        return convert({**world_row(row, shown), "redacted": True, "leaf": logged.leaf.hex()}, WorldDetails)
    return convert(sealed_row(archive, row, shown), WorldDetails)


class ReadState(ReadWorld, frozen=True, kw_only=True):
    """A world and a path in its data; absent, all of them."""

    path: Annotated[str, Meta(max_length=4_000, description="Dotted path, such as `orders.7.item`.")] | None = None


class StateValue(AnswerForm, frozen=True, kw_only=True):
    """The data of a world, or the value at a path."""

    world_id: str
    path: str | None = None
    value: Any


@operation(
    "worlds.state",
    "GET /worlds/{world_id}/state",
    "reader auditor",
    kind="whole",
    etag=lambda answer: answer.world_id,
    example=(
        ReadState(world_id=HEAD, path="orders.1.item"),
        StateValue(world_id=WORLD, path="orders.1.item", value="tea"),
    ),
)
def read_state(call: OperationCall, request: ReadState) -> StateValue:
    """Return the data of a world, or the value of a path; the ETag is the worldId, whose data never change."""
    from world.model.paths import look_up, parse_path
    from world.read_models.blame import plain_path, stands

    name, path = _world_id(call, request.world_id, request.at), request.path
    data = call.hosted.realm.data(name)
    if path is None:
        return StateValue(world_id=name, value=data)
    place = parse_path(plain_path(data, path))
    if not stands(data, place):
        raise RefusedError(ErrorCode.PATH_NOT_FOUND, f"World {name} has no value at {path!r}.", path=path)
    return StateValue(world_id=name, path=path, value=look_up(data, place))


class ComputedValues(AnswerForm, frozen=True, kw_only=True):
    """Computed values by name; `byOtherCode` names those of code that changed since, and `why` says why some lack."""

    world_id: str
    values: dict[str, Any]
    by_other_code: list[str]
    missing: list[str]
    why: str | None


@operation(
    "worlds.computed",
    "GET /worlds/{world_id}/computed",
    "reader auditor",
    kind="whole",
    example=(
        ReadWorld(world_id=HEAD),
        ComputedValues(world_id=WORLD, values={"computed.total": 3}, by_other_code=[], missing=[], why=None),
    ),
)
def read_computed(call: OperationCall, request: ReadWorld) -> ComputedValues:
    """Return the computed values of a world by its own schema."""
    name = _world_id(call, request.world_id, request.at)
    found = call.hosted.realm.computed(name)
    return ComputedValues(
        world_id=name,
        values=dict(found.values),
        by_other_code=list(found.by_other_code),
        missing=list(found.missing),
        why=found.why,
    )


class DiffWorlds(RequestForm, frozen=True, kw_only=True):
    """Two worlds to compare."""

    world_id: WorldName
    other: WorldName = field(name="with", default=HEAD)


class CauseDecision(AnswerForm, frozen=True, kw_only=True):
    """The decision that allowed a world, and the rules or answers of people that decided."""

    decision_id: str
    authority: str
    decision: Literal["approved", "rejected"]
    reason: str
    decided_at: int
    approved_scope: ScopeForm | UnsetType | None = UNSET
    rules: list[str]


class CauseForm(AnswerForm, frozen=True, kw_only=True):
    """What sealed a world: its proposal with decision, intent, actor and source, or the founding of the realm."""

    world_id: str
    sealed_at: int
    genesis: bool | None = None
    proposal_id: str | None = None
    attempt: int | None = None
    intent_id: str | None = None
    intent_key: str | None = None
    action: str | None = None
    actor: ActorForm | None = None
    projection_id: str | None = None
    source: SourceForm | None = None
    decision: CauseDecision | None = None


class DiffSides(AnswerForm, frozen=True, kw_only=True):
    """What caused the value of each world since their common ancestor, newest first."""

    a: list[CauseForm]
    b: list[CauseForm]


class WorldDifference(AnswerForm, frozen=True, kw_only=True):
    """A place at which two worlds differ; a value that one does not have is absent."""

    path: str
    before: Any = UNSET
    after: Any = UNSET
    by: DiffSides


class WorldDiff(AnswerForm, frozen=True, kw_only=True):
    """The differences of two worlds; `same` covers data, outcome, error and schema."""

    a: str
    b: str
    common_ancestor: str
    same: bool
    changes: list[WorldDifference]


_CAUSE: Final = CauseForm(
    world_id=WORLD,
    sealed_at=NOW,
    proposal_id=ID,
    attempt=1,
    intent_id="order-17",
    intent_key=HASH,
    action="order.place",
    actor=ACTOR,
    projection_id="api:intent",
    source=SourceForm(kind="api", event_id=ID),
)


@operation(
    "worlds.diff",
    "GET /worlds/{world_id}/diff",
    "reader auditor",
    kind="whole",
    example=(
        DiffWorlds(world_id=HASH),
        WorldDiff(
            a=HASH,
            b=WORLD,
            common_ancestor=HASH,
            same=False,
            changes=[WorldDifference(path="orders.1", after={"item": "tea"}, by=DiffSides(a=[], b=[_CAUSE]))],
        ),
    ),
)
def diff_worlds(call: OperationCall, request: DiffWorlds) -> WorldDiff:
    """Compare the data of two worlds, with the proposals that caused each difference."""
    from world.read_models.diff import compare

    archive = call.hosted.realm.archive
    found = compare(archive, _world_id(call, request.world_id), _world_id(call, request.other))
    return WorldDiff(
        a=found.a.world_id,
        b=found.b.world_id,
        common_ancestor=found.ancestor,
        same=found.same,
        changes=convert([one.to_wire() for one in found.differences], list[WorldDifference]),
    )


class BlamePath(ReadWorld, frozen=True, kw_only=True):
    """A path in the data of a world."""

    path: ValuePath
    history: History = False


class BlameForm(AnswerForm, frozen=True, kw_only=True):
    """The last change of a value: the world, its patches, and the proposal with its source; founding has none.

    With ``history`` there are the events besides: that of the world, those of the proposal, and that of its projection.
    """

    path: str
    value: Any
    world_id: str
    sealed_at: int
    patches: list[PatchForm]
    proposal: ProposalForm | None = None
    actor: ActorForm | None = None
    source: SourceForm | None = None
    projection_id: str | None = None
    world: EventForm | None = None
    history: list[LoggedForm] | UnsetType | None = UNSET
    projection: EventForm | UnsetType | None = UNSET


@operation(
    "worlds.blame",
    "GET /worlds/{world_id}/blame",
    "reader auditor",
    kind="whole",
    example=(
        BlamePath(world_id=HEAD, path="orders.1.item"),
        BlameForm(
            path="orders.1.item",
            value="tea",
            world_id=WORLD,
            sealed_at=NOW,
            patches=[PatchForm(op="set", path="orders.1.item", value="tea")],
            proposal=PROPOSAL,
            actor=ACTOR,
            source=SourceForm(kind="api", event_id=ID),
        ),
    ),
)
def blame_path(call: OperationCall, request: BlamePath) -> BlameForm:
    """Return the last change of a path, with the intent and the decision that allowed it."""
    found = call.hosted.realm.blame(request.path, _world_id(call, request.world_id, request.at))
    wire = found.to_wire()
    if request.history:
        proposal, log = found.proposal, call.hosted.realm.log
        wire["world"] = recorded(found.world)
        wire["history"] = None if proposal is None else call.visibility.history(log.stream(proposal.proposal_id))
        wire["projection"] = None if found.projection is None else recorded(found.projection)
    return convert(wire, BlameForm)


class BisectWorlds(ReadWorld, frozen=True, kw_only=True):
    """A value to search for from a world back to one of its ancestors; without `good` to the first world."""

    path: Annotated[ValuePath, Meta(description="A place in the data, or a computed value such as `computed.total`.")]
    becomes: Annotated[str, Meta(max_length=100_000, description="The value, as JSON; what is no JSON is a text.")]
    good: (
        Annotated[WorldName, Meta(description="An ancestor in which the path does not have the value yet.")] | None
    ) = None


class BisectedWorlds(AnswerForm, frozen=True, kw_only=True):
    """The first world in which a path has a value, with its cause; null where one of several `candidates` is it.

    ``before`` is the newest world in which it does not have the value, null where the first world of all has it.
    """

    first: CauseForm | None
    candidates: list[str]
    before: str | None
    tested: int
    worlds: int
    untestable: list[str]
    computed_by_other_code: list[str] | None = None


@operation(
    "worlds.bisect",
    "GET /worlds/{world_id}/bisect",
    "reader auditor",
    kind="whole",
    example=(
        BisectWorlds(world_id=HEAD, path="orders.1.item", becomes='"tea"'),
        BisectedWorlds(first=_CAUSE, candidates=[WORLD], before=HASH, tested=4, worlds=9, untestable=[]),
    ),
)
def bisect_worlds(call: OperationCall, request: BisectWorlds) -> BisectedWorlds:
    """Find the first world of a line of descent in which a path has a value."""
    from worldprotocol.api.lookup.bisection import ValueTest, line_to, search

    realm, newest = call.hosted.realm, _world_id(call, request.world_id, request.at)
    good = None if request.good is None else _world_id(call, request.good, request.at)
    test = ValueTest(realm.archive, request.path, request.becomes, realm.computed)
    return convert(search(realm, line_to(realm.archive, newest, good), test).to_wire(), BisectedWorlds)
