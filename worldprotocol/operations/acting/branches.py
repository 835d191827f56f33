"""Operations on branches: list, create, switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, convert

from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.commands import BY_OPERATOR, Command, IdOf, Table
from worldprotocol.operations.fields import WORLD, AtPoint, Name

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm

BranchName = Annotated[Name, Meta(description="Letters, digits and `. _ - /`, such as `trial/one`.")]


class BranchRow(AnswerForm, frozen=True, kw_only=True):
    """A branch with its head, its tip and whether it is the active one."""

    name: str
    head: str
    tip: str
    active: bool


class BranchRows(AnswerForm, frozen=True, kw_only=True):
    """Branches, in the order of creation."""

    branches: list[BranchRow]


def _rows(answer: BranchRows) -> Table:
    rows = [("*" if one.active else "", one.name, one.head[:12], one.tip[:12]) for one in answer.branches]
    return Table(("", "branch", "head", "tip"), rows, empty="The log has not been founded.")


@operation(
    "branches.list",
    "GET /branches",
    "reader auditor",
    command=Command(words="branch list", view=_rows),
    example=(AtPoint(), BranchRows(branches=[BranchRow(name="main", head=WORLD, tip=WORLD, active=True)])),
)
def list_branches(call: OperationCall, request: AtPoint) -> BranchRows:
    """List the branches in the order of creation, with head and tip; those whose creation is hidden are left out."""
    from world.read_models.lineage import Heads
    from worldprotocol.api.lookup.lineage_rows import branch_rows

    view, at = call.view, request.at
    heads = Heads(view.active, dict(view.branches)) if at is None else call.moment(at).heads()
    return convert({"branches": branch_rows(heads, call.visibility.branches(call.hosted.realm.archive))}, BranchRows)


class CreateBranch(RequestForm, frozen=True, kw_only=True):
    """A branch and the world at which it begins; absent, the head of the active branch."""

    name: BranchName
    world_id: (
        Annotated[Name, IdOf("world"), Meta(description="Where it begins; else the head of the active one.")] | None
    ) = None
    allow_failed: Annotated[bool, Meta(description="Begin at a world whose execution failed.")] = False


class CreatedBranch(AnswerForm, frozen=True, kw_only=True):
    """A branch that was created, and the world at which it began."""

    name: str
    head: str


def _created(call: OperationCall, request: CreateBranch, events: Sequence[Any]) -> CreatedBranch:
    return CreatedBranch(name=request.name, head=events[0].world_id)


@operation(
    "branches.create",
    "POST /branches",
    "operator",
    again=_created,
    status=lambda _: 201,
    statuses=(201,),
    command=Command(
        words="branch create",
        arguments=("name",),
        options={"world_id": "--at"},
        caller=BY_OPERATOR,
        view=lambda answer: f"The branch {answer.name} begins at world {answer.head[:12]}.",
    ),
    example=(CreateBranch(name="plan"), CreatedBranch(name="plan", head=WORLD)),
)
def create_branch(call: OperationCall, request: CreateBranch) -> CreatedBranch:
    """Create a branch at a world."""
    realm = call.realm
    realm.create_branch(request.name, request.world_id, by=call.actor_id, allow_failed=request.allow_failed)
    return CreatedBranch(name=request.name, head=realm.branch(request.name).head)


class SwitchBranch(RequestForm, frozen=True, kw_only=True):
    """The branch that becomes the active one."""

    name: BranchName


class ActiveBranch(AnswerForm, frozen=True, kw_only=True):
    """The active branch, and how many undecided proposals were superseded."""

    active: str
    superseded: int


def _switched(answer: ActiveBranch) -> str:
    were = "proposal was" if answer.superseded == 1 else "proposals were"
    return f"{answer.active} is the active branch; {answer.superseded} {were} superseded."


def _switched_before(call: OperationCall, request: SwitchBranch, events: Sequence[Any]) -> ActiveBranch:
    return ActiveBranch(active=request.name, superseded=sum(one.TOPIC == "proposal.superseded" for one in events))


@operation(
    "branches.switch",
    "POST /branches:switch",
    "operator",
    again=_switched_before,
    command=Command(words="branch switch", arguments=("name",), caller=BY_OPERATOR, view=_switched),
    example=(SwitchBranch(name="plan"), ActiveBranch(active="plan", superseded=0)),
)
def switch_branch(call: OperationCall, request: SwitchBranch) -> ActiveBranch:
    """Make a branch the active one; undecided proposals are superseded."""
    realm = call.realm
    before = _undecided(realm)
    realm.switch_branch(request.name, by=call.actor_id)
    return ActiveBranch(active=request.name, superseded=before - _undecided(realm))


def _undecided(realm: Realm) -> int:
    return sum(one.status in ("submitted", "evaluating") for one in realm.realm().proposals.values())
