"""Operations on calls of tools: begin one, report its result, and the run of an allowed shell command.

The process that runs a command (``worldctl run --call``) is on the machine of the workspace; it asks every few seconds
whether it continues. A run that is silent has ended, and its result is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType, convert, field, to_builtins

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, Awaited, OperationCall, RequestForm, Unhashed, operation
from worldprotocol.operations.acting.agents import agents_of
from worldprotocol.operations.acting.effects import CLAIM, ClaimForm, ReportedEffect, ReportResult, completed
from worldprotocol.operations.fields import ID, Name, NamedClaim, Seconds
from worldprotocol.operations.records import ProposalStatus

if TYPE_CHECKING:
    from world.state.effect_claim import EffectClaim
    from worldprotocol.agents.call_values import Answer, ToolCall
    from worldprotocol.agents.tool_calls import ToolCalls

WORKER: Final = "calls"
"""Name of the worker in the claims of calls that programs begin."""

SLICE_S: Final = 5.0
"""Longest time between two looks at the proposal of a call that waits, in seconds."""

_KEY: Final = "claude-code:s-1:toolu_01"
Texts = Annotated[list[Name], Meta(max_length=10_000)]
Text = Annotated[str, Meta(max_length=1_000_000)]
BoundaryWord = Literal["namespaces", "container", "none"]


class BeginCall(RequestForm, frozen=True, kw_only=True):
    """A call of a tool that the caller is about to make; its key is the ``Idempotency-Key``.

    With ``claim`` false, it is only asked whether the call may be begun.
    """

    action: Name
    input: dict[str, Any]
    claim: bool = True
    scope: Texts = field(default_factory=list)
    trace: dict[str, Any] | None = None
    branch: Name | None = None
    attempt: Annotated[str, Meta(pattern="^[A-Za-z0-9-]{1,40}$")] | None = None
    wait: Annotated[Seconds, Unhashed, Meta(description="Seconds to wait for people and resources.")] = 0


class CallAnswer(AnswerForm, frozen=True, kw_only=True):
    """`allowed` with the claim, `denied` with code and reason, `waiting`, or `open` in place of `allowed`."""

    answer: Literal["allowed", "denied", "waiting", "open"]
    proposal_id: str
    code: str | None = None
    reason: str | None = None
    result: dict[str, Any] | UnsetType | None = UNSET
    waits_for: str | None = None
    claim: ClaimForm | None = None


def _answer(found: Answer) -> CallAnswer:
    from worldprotocol.agents.call_values import Allowed, Denied

    name = found.proposal.proposal_id
    if isinstance(found, Allowed):
        return CallAnswer(answer="allowed", proposal_id=name, claim=convert(found.claim.to_wire(), ClaimForm))
    if isinstance(found, Denied):
        result = None if found.result is None else found.result.to_wire()
        return CallAnswer(answer="denied", proposal_id=name, code=found.code, reason=found.reason, result=result)
    return CallAnswer(answer="waiting", proposal_id=name, waits_for=found.waits_for)


def _call_of(call: OperationCall, request: BeginCall) -> tuple[ToolCalls, ToolCall]:
    """Return the calls of the caller, and the one that a request begins.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a request without a key.
    """
    from worldprotocol.agents.call_values import ToolCall
    from worldprotocol.agents.tool_calls import ToolCalls

    if call.key is None:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, "The call has no Idempotency-Key; send the caller's own id of the call."
        )
    tool_call = ToolCall(
        call.key,
        request.action,
        request.input,
        trace=request.trace,
        branch=request.branch,
        scope=tuple(request.scope),
        attempt=request.attempt,
    )
    return ToolCalls(call.realm, call.actor_id, WORKER), tool_call


def _begun(call: OperationCall, request: BeginCall) -> CallAnswer:
    """Propose a call, or find its proposal, and return whether it may be made; it is begun then."""
    calls, tool_call = _call_of(call, request)
    while True:
        name = calls.submit(tool_call).proposal_id
        if not request.claim:
            asked = calls.peek(tool_call, name)
            return CallAnswer(answer="open", proposal_id=name) if asked is None else _answer(asked)
        found = calls.look(tool_call, name)
        if found is not None:  # else another call took the proposal meanwhile
            return _answer(found)


def _again(call: OperationCall, request: BeginCall, answer: CallAnswer) -> CallAnswer:
    """Return the answer to a call that waits, as it is now."""
    calls, tool_call = _call_of(call, request)
    if calls.is_next(tool_call, call.hosted.realm.proposal(answer.proposal_id)):
        return _begun(call, request)
    waits = calls.peek(tool_call, answer.proposal_id)
    return answer if waits is None else _answer(waits)


@operation(
    "calls.begin",
    "POST /calls",
    "actor",
    is_keyed=True,
    awaited=Awaited(
        lambda _, answer: answer.proposal_id,
        lambda _, answer: answer.answer != "waiting",
        _again,
        pause_s=lambda _, most: min(most, SLICE_S),
    ),
    example=(
        BeginCall(action="tool.use", input={"tool": "refund", "arguments": {"order": "o-1"}}, attempt="1"),
        CallAnswer(answer="waiting", proposal_id=ID, waits_for="an answer of ann"),
    ),
)
def begin_call(call: OperationCall, request: BeginCall) -> CallAnswer:
    """Propose a call of a tool, and claim it once allowed.

    `answer` is `allowed` with the claim, `denied` with the reason, or `waiting`. With `claim` false nothing is begun,
    and `open` is in place of `allowed`.
    """
    return _begun(call, request)


@operation(
    "calls.report",
    "POST /calls:report",
    "actor",
    is_keyed=True,
    example=(
        ReportResult(claim=to_builtins(CLAIM), report={"result": {"value": {"value": "paid"}}}),
        ReportedEffect(proposal_id=ID, status="completed"),
    ),
)
def report_call(call: OperationCall, request: ReportResult) -> ReportedEffect:
    """Record the result of a call that the caller began; a repetition changes nothing."""

    def check(claim: EffectClaim) -> None:
        if call.hosted.realm.proposal(claim.proposal_id).submitted.actor.actor_id != call.actor_id:
            raise RefusedError(
                ErrorCode.CLAIM_LOST, f"The call {claim.proposal_id} is of another actor, who reports its result."
            )

    return completed(call, request, check)


class RunByKey(RequestForm, frozen=True, kw_only=True):
    """The run of a shell command, by the key of its call."""

    key: Name


class BeginRun(RunByKey, frozen=True, kw_only=True):
    """The run of a shell command that is about to begin: the text it was given, and the boundary that it found."""

    text: Text
    boundary: BoundaryWord
    is_unconfined: bool = False


class RunTerms(AnswerForm, frozen=True, kw_only=True):
    """What the run of an allowed shell command receives: its text, its scope and its workspace."""

    proposal_id: str
    agent_id: str
    text: str
    cwd: str
    is_confined: bool
    boundary: str | None
    scope: list[NamedClaim]
    backup: str | None
    ignores_case: bool
    ignores_normal_form: bool
    workspace: dict[str, Any]


@operation(
    "calls.run",
    "POST /calls:run",
    "actor",
    is_keyed=True,
    example=(
        BeginRun(key=_KEY, text="make", boundary="namespaces"),
        RunTerms(
            proposal_id=ID,
            agent_id="claude",
            text="make",
            cwd="/project",
            is_confined=True,
            boundary="namespaces",
            scope=[NamedClaim(predicate="MUTATES", resource="FILE:/*")],
            backup=None,
            ignores_case=False,
            ignores_normal_form=False,
            workspace={"root": "/project"},
        ),
    ),
)
def begin_run(call: OperationCall, request: BeginRun) -> RunTerms:
    """Begin the run of an allowed shell command of the caller; the answer is its text, its scope and its workspace."""
    from worldprotocol.agents.command_runs import CommandRuns, RunRequest

    agents, name = agents_of(call.hosted.name, call.served.agents), (call.actor_id, request.key)
    agents.absent(call.hosted.realm).take_run(name)
    stated = RunRequest(request.key, request.text, request.boundary, request.is_unconfined)
    terms = CommandRuns(call.realm, call.actor_id).begin(stated, agents.boundary)
    agents.running.hear(name)
    return convert({**terms, "workspace": agents.workspace_to_wire()}, RunTerms)


class ExtendRun(RunByKey, frozen=True, kw_only=True):
    """A run that asks whether it continues; one whose command has ended asks what others changed meanwhile.

    `moves`: whether one that another server holds moves to the one that answers.
    """

    is_ending: bool = False
    moves: bool = False


class ExtendedRun(AnswerForm, frozen=True, kw_only=True):
    """Whether a run continues, whether another server holds it, and at its end what others changed meanwhile."""

    goes_on: bool
    elsewhere: bool
    inputs_changed: list[str] | UnsetType = UNSET


@operation(
    "calls.extend",
    "POST /calls:extend",
    "actor",
    is_keyed=True,
    example=(ExtendRun(key=_KEY), ExtendedRun(goes_on=True, elsewhere=False)),
)
def extend_run(call: OperationCall, request: ExtendRun) -> ExtendedRun:
    """Return whether a run of the caller continues.

    And whether another server holds it, and at its end what others changed meanwhile.
    """
    from worldprotocol.agents.command_runs import CommandRuns

    agents, name = agents_of(call.hosted.name, call.served.agents), (call.actor_id, request.key)
    goes_on = CommandRuns(call.realm, call.actor_id).is_wanted(request.key, call.clock.now_ms())
    is_here = not goes_on or agents.absent(call.hosted.realm).hear_run(name, moves=request.moves)
    changed = agents.files.inputs_changed(call.realm, *name) if request.is_ending else UNSET
    return ExtendedRun(goes_on=goes_on, elsewhere=not is_here, inputs_changed=changed)


class EndRun(RunByKey, frozen=True, kw_only=True):
    """How the run of a shell command ended: by an exit code, or a code and a reason; and what was observed.

    ``isWithin`` says of a violation that it only concerned files of the workspace.
    """

    exit_code: int | None = None
    code: Annotated[str, Meta(pattern="^[A-Z_]{1,64}$")] | None = None
    reason: Annotated[str, Meta(max_length=10_000)] = ""
    held_by: Annotated[list[Name], Meta(max_length=20)] = field(default_factory=list)
    changed: Annotated[list[Text], Meta(max_length=1_000)] = field(default_factory=list)
    is_within: bool = False
    observed: Annotated[list[dict[str, Any]], Meta(max_length=10_000)] = field(default_factory=list)
    violations: Annotated[list[dict[str, Any]], Meta(max_length=1_000)] = field(default_factory=list)


class EndedRun(AnswerForm, frozen=True, kw_only=True):
    """The proposal of a run, its status, and the files that others changed meanwhile."""

    proposal_id: str
    status: ProposalStatus
    inputs_changed: list[str]


@operation(
    "calls.end",
    "POST /calls:end",
    "actor",
    is_keyed=True,
    example=(
        EndRun(key=_KEY, exit_code=0, held_by=["namespaces"]),
        EndedRun(proposal_id=ID, status="completed", inputs_changed=["FILE:/src/app.py"]),
    ),
)
def end_run(call: OperationCall, request: EndRun) -> EndedRun:
    """Record how a run of the caller ended, which completes the effect of its call."""
    from world.state.effect_claim import EffectReport, read_form
    from worldprotocol.agents.command_runs import VIOLATED, CommandRuns

    agents = agents_of(call.hosted.name, call.served.agents)
    observed = {"result": {}, "observed": request.observed, "violations": request.violations}
    report = read_form(EffectReport, observed)
    value: dict[str, Any] = {"exitCode": request.exit_code, "heldBy": request.held_by, "changed": request.changed}
    failure = None if request.code is None else (request.code, request.reason)
    try:
        value |= agents.files.end(call.realm, call.actor_id, request.key)
        ended = CommandRuns(call.realm, call.actor_id).end(request.key, value, failure, report)
    finally:
        agents.running.drop((call.actor_id, request.key))
    given = ended.intent.body.input
    if request.code == VIOLATED and request.is_within and given.get("confined"):
        agents.running.widen(call.actor_id, given["command"])
    changed = value.get("inputsChanged", [])
    return EndedRun(proposal_id=ended.proposal_id, status=ended.status, inputs_changed=changed)


class ReadPins(RequestForm, frozen=True, kw_only=True):
    """An MCP server."""

    server: Name


class PinnedServer(AnswerForm, frozen=True, kw_only=True):
    """The pinned tools of an MCP server; null where it has none."""

    server: str
    pins: dict[str, Any] | None


@operation(
    "mcp.pins",
    "GET /mcp/{server}/pins",
    "actor",
    example=(
        ReadPins(server="git"),
        PinnedServer(server="git", pins={"instructions": None, "tools": {"git_status": {"name": "git_status"}}}),
    ),
)
def read_pins(call: OperationCall, request: ReadPins) -> PinnedServer:
    """Return the pinned tools of an MCP server in the state of the active branch; null where it has none."""
    from worldprotocol.agents.proxy.pins import pins_in

    return PinnedServer(server=request.server, pins=pins_in(call.hosted.realm.data(), request.server))
