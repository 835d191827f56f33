"""Operations on governed runs: the list, and what one run declared, did and violated."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, convert, field

from worldprotocol.operations import AnswerForm, OperationCall, Paged, RequestForm, operation
from worldprotocol.operations.fields import ID, NOW, At, Limit, Name, NamedClaim
from worldprotocol.operations.records import ProposalStatus

RunOutcome = Literal["open", "completed", "failed", "violated", "lost", "interrupted"]
RunKind = Literal["python", "command"]
RunMode = Literal["strict", "permissive"]


class ListRuns(RequestForm, frozen=True, kw_only=True):
    """Which runs are wanted, and a point in the past; absent, now."""

    limit: Limit = 50
    agent: Annotated[Name, Meta(description="Only runs of this agent.")] | None = None
    open_only: Annotated[bool, Meta(description="Only runs that have not ended.")] = field(name="open", default=False)
    before: Annotated[int, Meta(ge=1, le=2**53, description="`next` of the page before.")] | None = None
    at: At | None = None


class ListedRun(AnswerForm, frozen=True, kw_only=True):
    """A run with what it declared; times are in ms since 1970."""

    run_id: str
    agent_id: str
    session_id: str
    kind: RunKind
    mode: RunMode
    command: list[str]
    outcome: RunOutcome
    opened_at: int
    closed_at: int | None = None
    exit_code: int | None = None
    since: int
    declared: list[NamedClaim]


class ListedRuns(AnswerForm, frozen=True, kw_only=True):
    """Runs, newest first; `next` is `before` of the next page, null after the last one."""

    runs: list[ListedRun]
    more: bool
    next: int | None


_DECLARED: Final = NamedClaim(predicate="MUTATES", resource="FILE:/dist/*")


@operation(
    "runs.list",
    "GET /runs",
    "reader auditor",
    kind="whole",
    page=Paged("runs", "before"),
    example=(
        ListRuns(agent="bot", open_only=True),
        ListedRuns(
            runs=[
                ListedRun(
                    run_id=ID,
                    agent_id="bot",
                    session_id="s-1",
                    kind="command",
                    mode="strict",
                    command=["make"],
                    outcome="open",
                    opened_at=NOW,
                    since=NOW,
                    declared=[_DECLARED],
                )
            ],
            more=False,
            next=None,
        ),
    ),
)
def list_all_runs(call: OperationCall, request: ListRuns) -> ListedRuns:
    """List the runs, newest first, with what each declared."""
    from world.model.record import to_wire
    from worldprotocol.runs.listing import list_runs

    found = list(
        list_runs(
            call.hosted.realm.archive,
            most=request.limit + 1,
            agent=request.agent,
            open_only=request.open_only,
            upto=None if request.at is None else call.moment(request.at).position,
            before=request.before,
        )
    )
    shown, more = found[: request.limit], len(found) > request.limit
    rows: list[dict[str, Any]] = [
        {**one.to_wire(), "since": one.opened.at, "declared": to_wire(one.opened.declared)} for one in shown
    ]
    return convert({"runs": rows, "more": more, "next": shown[-1].position if more else None}, ListedRuns)


class ReadRun(RequestForm, frozen=True, kw_only=True):
    """A run, or the proposal whose effects were observed; and a point in the past; absent, now."""

    run_id: Name
    at: At | None = None


class ObservedForm(NamedClaim, frozen=True, kw_only=True):
    """A permitted side effect: how it was observed, and how often."""

    depth: str
    count: int


class ViolationForm(NamedClaim, frozen=True, kw_only=True):
    """An undeclared side effect: whether it was prevented, the error that the run received, and what it declared."""

    depth: str
    blocked: bool
    message: str
    declared: list[NamedClaim]
    call: str | None = None


class AmendmentForm(NamedClaim, frozen=True, kw_only=True):
    """A claim by which a lease of the run widened its declaration."""

    verdict_id: str


class RollbackForm(AnswerForm, frozen=True, kw_only=True):
    """A backup that was restored: the names of files by what was done."""

    verdict_id: str
    restored: list[str]
    removed: list[str]
    failed: list[str]


class ChangeForm(AnswerForm, frozen=True, kw_only=True):
    """A difference of contents at a resource."""

    kind: str
    resource: str


class RunDetails(AnswerForm, frozen=True, kw_only=True):
    """What a run declared, did and violated; of the effects of a proposal, `outcome` is the status of the proposal."""

    run_id: str
    outcome: RunOutcome | ProposalStatus
    agent_id: str | None = None
    session_id: str | None = None
    kind: RunKind | None = None
    mode: RunMode | None = None
    command: list[str] | None = None
    held_by: list[str] | None = None
    verdict_id: str | None = None
    lease_ids: list[str] | None = None
    opened_at: int | None = None
    declared: list[NamedClaim] | None = None
    observed: list[ObservedForm]
    violations: list[ViolationForm]
    amendments: list[AmendmentForm]
    rollbacks: list[RollbackForm]
    closed_at: int | None = None
    unused: list[NamedClaim] | None = None
    changes: list[ChangeForm] | None = None
    foreign: list[ChangeForm] | None = None
    more_unused: int | None = None
    exit_code: int | None = None
    reason: str | None = None


@operation(
    "runs.read",
    "GET /runs/{run_id}",
    "reader auditor",
    kind="whole",
    example=(
        ReadRun(run_id="none"),
        RunDetails(
            run_id=ID,
            outcome="open",
            agent_id="bot",
            session_id="s-1",
            kind="command",
            mode="strict",
            command=["make"],
            held_by=[],
            verdict_id=ID,
            lease_ids=[],
            opened_at=NOW,
            declared=[_DECLARED],
            observed=[],
            violations=[],
            amendments=[],
            rollbacks=[],
        ),
    ),
)
def read_run(call: OperationCall, request: ReadRun) -> RunDetails:
    """Return what a run declared, what was observed, its violations and rollbacks; `unused` once it has ended."""
    from worldprotocol.runs.verification import read_verification

    upto = None if request.at is None else call.moment(request.at).position
    return convert(read_verification(call.hosted.realm.archive, request.run_id, upto).to_wire(), RunDetails)
