"""Operations on a realm as a whole: what it is, and the actions that it offers to an actor."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, convert, field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.access import RightName
from worldprotocol.operations.fields import HASH, ID, Name, Position
from worldprotocol.operations.records import ACTOR, ActorForm

Sort = Literal["type_lex", "schema_order"]


class ReadRealm(RequestForm, frozen=True, kw_only=True):
    """The realm of the path."""


class RealmDetails(AnswerForm, frozen=True, kw_only=True):
    """A realm, and the caller in it; `activeBranch` is null where its name is hidden, `actor` for no registered one."""

    name: str
    log_id: str | None
    position: int
    schema_hash: str
    active_branch: str | None
    epoch: int
    actor_id: str
    actor: ActorForm | None
    rights: list[RightName]


@operation(
    "realms.read",
    "GET",
    "reader actor approver operator auditor worker",
    example=(
        ReadRealm(),
        RealmDetails(
            name="shop",
            log_id=ID,
            position=7,
            schema_hash=HASH,
            active_branch="main",
            epoch=0,
            actor_id="bot",
            actor=ACTOR,
            rights=["reader"],
        ),
    ),
)
def read_realm(call: OperationCall, request: ReadRealm) -> RealmDetails:
    """Return identity, position and active branch of a realm, and the rights of the caller."""
    view = call.view
    founded, actor = view.founded, view.actors.get(call.actor_id)
    shown = call.visibility.branches(call.hosted.realm.archive)
    return RealmDetails(
        name=call.hosted.name,
        log_id=None if founded is None else founded.log_id,
        position=view.position,
        schema_hash=view.schema_hash,
        active_branch=view.active if shown is None or view.active in shown else None,
        epoch=view.epoch,
        actor_id=call.actor_id,
        actor=None if actor is None else convert(actor.to_wire(), ActorForm),
        rights=convert(sorted(call.visibility.rights), list[RightName]),
    )


class ListActions(RequestForm, frozen=True, kw_only=True):
    """Whose catalog of actions, in which state and how it is shown; absent, that of the caller on the active branch."""

    actor: Annotated[Name, Meta(description="Another actor needs the right reader or auditor.")] | None = None
    mode: Annotated[Literal["llm", "ui", "debug"], Meta(description="Fields that are shown.")] = "llm"
    branch: Name | None = None
    at: Annotated[str, Meta(max_length=200, description="worldId of a past world.")] | None = None
    upto: Annotated[Position, Meta(description="With `at`: position of an event.")] | None = None
    all: Annotated[bool, Meta(description="Mark unavailable actions in place of dropping them.")] = False
    certain: Annotated[bool, Meta(description="Leave out what is not certain to be available.")] = False
    sort: Sort = "type_lex"
    most: Position | None = field(name="max", default=None)
    explain: Annotated[bool, Meta(description="Add why each action is listed or not, with the values read.")] = False


class AvailabilityForm(AnswerForm, frozen=True, kw_only=True):
    """Whether an action is available, and why it is not or why that is unknown."""

    status: Literal["available", "unavailable", "unknown"]
    reason: str | None = None


class OfferedAction(AnswerForm, frozen=True, kw_only=True):
    """An action with the fields that the mode shows."""

    type: str
    label: str | None = None
    description: str | None = None
    input_schema: Any = None
    availability: AvailabilityForm


class ExplainedAction(AnswerForm, frozen=True, kw_only=True):
    """Why an action is offered or not: its predicate, the values that it read, and those that are absent."""

    type: str
    offered: bool
    availability: AvailabilityForm
    why: str
    predicate: Any
    reads: dict[str, Any]
    missing: list[str]


class CatalogForm(AnswerForm, frozen=True, kw_only=True):
    """A catalog of actions; its hash is the same in every mode."""

    kind: Literal["action_catalog"]
    schema_hash: str
    catalog_hash: str
    actions: list[OfferedAction]
    explanations: list[ExplainedAction] | None = None


@operation(
    "actions.list",
    "GET /actions",
    "actor reader auditor",
    kind="personal",
    example=(
        ListActions(mode="ui"),
        CatalogForm(
            kind="action_catalog",
            schema_hash=HASH,
            catalog_hash=HASH,
            actions=[OfferedAction(type="order.place", availability=AvailabilityForm(status="available"))],
        ),
    ),
)
def list_actions(call: OperationCall, request: ListActions) -> CatalogForm:
    """Return the catalog of actions for the caller, or for another actor, as `worldctl actions --json` prints it."""
    from projections.catalog import Pruning

    if request.actor not in (None, call.actor_id):
        if not call.visibility.reads_all:
            raise RefusedError(
                ErrorCode.NOT_THE_VERIFIED_ACTOR,
                f"The caller was verified as {call.actor_id!r}; the catalog of another actor needs the right reader or "
                "auditor. Leave `actor` out.",
            )
        call.visibility.check_whole()
    if request.explain:
        if not call.visibility.reads_all:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                "An explanation shows values of the state, and needs the right reader or auditor; leave `explain` out.",
            )
        call.visibility.check_whole()
    pruning = Pruning.read(
        {
            "policy": "mark_only" if request.all else "drop_unavailable",
            "includeUnknown": not request.certain,
            "sort": request.sort,
            "maxActions": request.most,
        }
    )
    catalog, why = call.hosted.realm.actions.explain(
        request.actor or call.actor_id,
        mode=request.mode,
        pruning=pruning,
        branch=request.branch,
        at=request.at,
        upto=None if request.at is None else request.upto,
    )
    explained = {"explanations": [one.to_wire() for one in why]} if request.explain else {}
    return convert({**catalog.to_wire(), **explained}, CatalogForm)
