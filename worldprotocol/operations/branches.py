"""Operations on branches: list, create, switch."""

from __future__ import annotations

from msgspec import convert

from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.fields import WORLD, AtPoint, Name


class BranchRow(AnswerForm, frozen=True, kw_only=True):
    """A branch with its head, its tip and whether it is the active one."""

    name: str
    head: str
    tip: str
    active: bool


class BranchRows(AnswerForm, frozen=True, kw_only=True):
    """Branches, in the order of creation."""

    branches: list[BranchRow]


@operation(
    "branches.list",
    "GET /branches",
    "reader auditor",
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

    name: Name
    world_id: Name | None = None
    allow_failed: bool = False


class CreatedBranch(AnswerForm, frozen=True, kw_only=True):
    """A branch that was created."""

    name: str


@operation(
    "branches.create",
    "POST /branches",
    "operator",
    answers=lambda request: CreatedBranch(name=request.name),
    status=lambda _: 201,
    statuses=(201,),
    example=(CreateBranch(name="plan"), CreatedBranch(name="plan")),
)
def create_branch(call: OperationCall, request: CreateBranch) -> None:
    """Create a branch at a world."""
    call.realm.create_branch(request.name, request.world_id, by=call.actor_id, allow_failed=request.allow_failed)


class SwitchBranch(RequestForm, frozen=True, kw_only=True):
    """The branch that becomes the active one."""

    name: Name


class ActiveBranch(AnswerForm, frozen=True, kw_only=True):
    """The active branch."""

    active: str


@operation(
    "branches.switch",
    "POST /branches:switch",
    "operator",
    answers=lambda request: ActiveBranch(active=request.name),
    example=(SwitchBranch(name="plan"), ActiveBranch(active="plan")),
)
def switch_branch(call: OperationCall, request: SwitchBranch) -> None:
    """Make a branch the active one; undecided proposals are superseded."""
    call.realm.switch_branch(request.name, by=call.actor_id)
