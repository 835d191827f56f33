"""Operations on jobs: start one of each kind, list, read and cancel.

A job is an analysis of the log that a process of its own does; nothing is written to the log. Policies are names of
loaded policies, or the text of a policy file, which contains conditions in CEL and no code. Nothing that a request
contains is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol

from msgspec import Meta, convert, field, structs, to_builtins

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, Awaited, MediaType, OperationCall, RequestForm, Unhashed, operation
from worldprotocol.operations.declaring import Declared
from worldprotocol.operations.fields import ID, NOW, Name, Seconds

JobKind = Literal["verify", "recheck", "whatif", "backtest"]
JobStatus = Literal["running", "done", "failed", "cancelled"]
Point = Annotated[str, Meta(min_length=1, max_length=200)]
Time = Annotated[str, Meta(min_length=1, max_length=100, description="ISO 8601, ms since 1970, or 2h.")]
Place = Annotated[int, Meta(ge=1, le=2**53)]
PolicyText = Annotated[str, Meta(min_length=1, max_length=200_000)]
PolicyFormat = Literal["toml", "yaml"]
SavedHead = Annotated[str, Meta(pattern="^[0-9]{1,18}:[0-9a-f]{64}$")]
Variation = Literal["hashseed", "order", "locale", "timezone"]
Processes = Annotated[int, Meta(ge=1, le=8)]


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job was started with.

    Args:
        kind: the kind of job.
        options: its options as JSON.
        by: the actor that started it.
        key: the caller's key of the request; None without one.
    """

    kind: JobKind
    options: Mapping[str, Any]
    by: str
    key: str | None = None


class JobFault(AnswerForm, frozen=True, kw_only=True):
    """Why a job failed."""

    code: str
    message: str


class ListedJob(AnswerForm, frozen=True, kw_only=True):
    """A job; times are in ms since 1970, and `done` of `total` events are processed."""

    job_id: str
    kind: JobKind
    status: JobStatus
    options: dict[str, Any]
    by: str
    started_at: int
    ended_at: int | None
    done: int
    total: int
    error: JobFault | None


class JobForm(ListedJob, frozen=True, kw_only=True):
    """A job with its result, which is null until it is done."""

    result: Any


class VerificationForm(JobForm, frozen=True, kw_only=True):
    """A verification; `checked` is `done`, and `report` is `result`."""

    checked: int
    report: Any


class ListedJobs(AnswerForm, frozen=True, kw_only=True):
    """Jobs, newest first."""

    jobs: list[ListedJob]


class KeptJob(Protocol):
    """A job that was started."""

    request: JobRequest

    def listed(self) -> ListedJob:
        """Return its state."""

    def shown(self) -> JobForm:
        """Return its state with its result."""


class KeptJobs(Protocol):
    """The jobs of one realm."""

    @property
    def listed(self) -> Sequence[KeptJob]:
        """The jobs that are kept, newest first."""

    def start(self, job_id: str, request: JobRequest) -> KeptJob:
        """Start a job; a repeated request, and one that equals the running job, is that job."""

    def job(self, job_id: str) -> KeptJob:
        """Return a job."""

    def newest(self, kind: JobKind) -> KeptJob:
        """Return the newest job of a kind."""

    def cancel(self, job_id: str) -> KeptJob:
        """Cancel a job; one that has ended stays as it is."""


class StartVerification(RequestForm, frozen=True, kw_only=True):
    """A verification of the whole log, also against tree heads that were kept elsewhere, as `SIZE:ROOT`."""

    against: Annotated[list[SavedHead], Meta(max_length=100)] = field(default_factory=list)


class StartRecheck(RequestForm, frozen=True, kw_only=True):
    """A recheck: all of it or up to the first divergence, up to an event or a point in the past, or varied.

    With `proposal`, it rechecks the steps of that proposal.
    """

    all: bool = False
    upto: Place | None = None
    at: Point | None = None
    jobs: Processes | None = None
    runs: Annotated[int, Meta(ge=1, le=10)] | None = None
    vary: Annotated[list[Variation], Meta(max_length=4)] = field(default_factory=list)
    proposal: Name | None = None

    def __post_init__(self) -> None:
        """Refuse two ends, and options that a recheck of one proposal does not have."""
        if self.at is not None and self.upto is not None:
            raise ValueError("`at` and `upto` both name the end; name one of them")
        if self.proposal is not None and any((self.upto, self.at, self.jobs, self.runs, self.vary)):
            raise ValueError("`proposal` can be combined with `all` only")


class InsertedIntent(RequestForm, frozen=True, kw_only=True):
    """An intent that is submitted only in the what-if; without `at`, at its start."""

    actor: Name
    type: Name
    input: Any = None
    scope_proposal: dict[str, Any] | None = None
    branch: Name | None = None
    at: Time | None = None


class StartWhatIf(RequestForm, frozen=True, kw_only=True):
    """A what-if: where it begins, dropped proposals, other policies, inserted intents."""

    begin: Point | None = field(name="from", default=None)
    drop: Annotated[list[Name], Meta(max_length=1_000)] = field(default_factory=list)
    policies: Annotated[list[Name], Meta(max_length=20)] = field(default_factory=list)
    policy_text: PolicyText | None = None
    policy_format: PolicyFormat = "toml"
    insert: Annotated[list[InsertedIntent], Meta(max_length=1_000)] = field(default_factory=list)


class StartBacktest(RequestForm, frozen=True, kw_only=True):
    """A backtest of a loaded policy, or of the text of one, over a stretch of the log."""

    policy: Name | None = None
    policy_text: PolicyText | None = None
    policy_format: PolicyFormat = "toml"
    of: Name | None = None
    since: Time | None = None
    until: Time | None = None
    branch: Name | None = None
    last: Place | None = None
    jobs: Processes | None = None

    def __post_init__(self) -> None:
        """Refuse two policies, and none."""
        if (self.policy is None) == (self.policy_text is None):
            raise ValueError("name a `policy`, or give its `policyText`")


class NewestVerification(RequestForm, frozen=True, kw_only=True):
    """The newest verification."""


class ListJobs(RequestForm, frozen=True, kw_only=True):
    """The kind of the jobs; absent, of all kinds."""

    kind: JobKind | None = None


class ReadJob(RequestForm, frozen=True, kw_only=True):
    """A job, and how long to wait for its end."""

    job_id: Name
    wait: Annotated[Seconds, Unhashed] = 0


class NamedJob(RequestForm, frozen=True, kw_only=True):
    """A job."""

    job_id: Name


_JOB: Final = JobForm(
    job_id=ID,
    kind="recheck",
    status="running",
    options={"all": True, "upto": 400},
    by="aud",
    started_at=NOW,
    ended_at=None,
    done=512,
    total=2_048,
    error=None,
    result=None,
)
_PROGRESS: Final = (MediaType("text/event-stream", str, 'event: ended\ndata: {"status": "done"}\n\n'),)
_VERIFICATION: Final = VerificationForm(
    **structs.asdict(structs.replace(_JOB, kind="verify", options={"against": []})), checked=512, report=None
)


def _accepted(_: AnswerForm) -> int:
    return 202


@operation(
    "verify.start",
    "POST /verify",
    "auditor operator",
    is_immediate=True,
    status=_accepted,
    statuses=(202,),
    example=(StartVerification(), _VERIFICATION),
)
def start_verification(call: OperationCall, request: StartVerification) -> VerificationForm:
    """Start a verification of the log; where an equal one is running, it is that one."""
    return verified(_started(call, "verify", request))


@operation(
    "verify.read",
    "GET /verify",
    "auditor operator",
    is_immediate=True,
    example=(NewestVerification(), _VERIFICATION),
)
def read_verification(call: OperationCall, request: NewestVerification) -> VerificationForm:
    """Return progress or report of the newest verification."""
    return verified(call.served.jobs.newest("verify"))


def verified(job: KeptJob) -> VerificationForm:
    """Return a verification with its report.

    Args:
        job: the job.
    """
    shown = job.shown()
    return VerificationForm(**structs.asdict(shown), checked=shown.done, report=shown.result)


@operation(
    "verify.stream",
    "GET /verify/stream",
    "auditor operator",
    is_immediate=True,
    is_stream=True,
    media=_PROGRESS,
    example=(NewestVerification(), _VERIFICATION),
)
def stream_verification(call: OperationCall, request: NewestVerification) -> VerificationForm:
    """Stream the progress of the newest verification (SSE); the last event, `ended`, has the report."""
    return verified(call.served.jobs.newest("verify"))


@operation(
    "recheck.start",
    "POST /recheck",
    "auditor operator",
    kind="whole",
    is_immediate=True,
    status=_accepted,
    statuses=(202,),
    example=(StartRecheck(all=True, upto=400), _JOB),
)
def start_recheck(call: OperationCall, request: StartRecheck) -> JobForm:
    """Start a recheck of the log; where an equal one is running, it is that one."""
    return _started(call, "recheck", request).shown()


@operation(
    "whatif.start",
    "POST /whatif",
    "auditor",
    kind="whole",
    is_immediate=True,
    status=_accepted,
    statuses=(202,),
    example=(
        StartWhatIf(drop=[ID]),
        structs.replace(_JOB, kind="whatif", options={"from": None, "drop": [ID]}),
    ),
)
def start_what_if(call: OperationCall, request: StartWhatIf) -> JobForm:
    """Start a what-if; where an equal one is running, it is that one. Nothing is written to the log."""
    _check_policies(call, request.policies, request.policy_text, request.policy_format)
    return _started(call, "whatif", structs.replace(request, insert=[_frozen(one) for one in request.insert])).shown()


def _frozen(inserted: InsertedIntent) -> InsertedIntent:
    """Return an intent as a log would hold it: an integer beyond 2^53 becomes a double.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for what no log can hold.
    """
    from world.model.immutable_json import freeze

    scope = inserted.scope_proposal
    return structs.replace(
        inserted,
        input=freeze(inserted.input, "$.input"),
        scope_proposal=None if scope is None else freeze(scope, "$.scopeProposal"),
    )


@operation(
    "backtest.start",
    "POST /backtest",
    "auditor",
    kind="whole",
    is_immediate=True,
    status=_accepted,
    statuses=(202,),
    example=(
        StartBacktest(policy_text='name = "draft"\n[[rules]]\nid = "all"\nverdict = "approve"\n', since="3d", last=200),
        structs.replace(_JOB, kind="backtest", options={"policy": None, "since": "3d", "last": 200}),
    ),
)
def start_backtest(call: OperationCall, request: StartBacktest) -> JobForm:
    """Start a backtest; where an equal one is running, it is that one. Nothing is written to the log."""
    named = [] if request.policy is None else [request.policy]
    _check_policies(call, named, request.policy_text, request.policy_format)
    return _started(call, "backtest", request).shown()


def _check_policies(call: OperationCall, names: list[str], text: str | None, form: str) -> None:
    """Refuse policies that are not loaded, so that no text of a request is taken for a file or a module.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, ``INVALID_POLICY``.
    """
    from authority.policies.policy_file import policy_from_text

    known = call.hosted.realm._composed.policies.names()
    for name in names:
        if name not in known:
            raise RefusedError(
                ErrorCode.UNKNOWN_POLICY,
                f"No policy {name[:80]!r} is loaded by this server; it has {', '.join(known) or 'none'}. Give the "
                "text of a policy file as `policyText`.",
            )
    if text is not None:
        policy_from_text(text, f"policy.{form}")


def _started(call: OperationCall, kind: JobKind, request: RequestForm) -> KeptJob:
    names = zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True)
    options = {member: to_builtins(getattr(request, name)) for name, member in names}
    return call.served.jobs.start(
        call.hosted.realm.new_id(), JobRequest(kind, options, call.actor_id, call.verified.key)
    )


@operation(
    "jobs.list",
    "GET /jobs",
    "auditor operator",
    is_immediate=True,
    example=(ListJobs(), ListedJobs(jobs=[convert(to_builtins(_JOB), ListedJob)])),
)
def list_jobs(call: OperationCall, request: ListJobs) -> ListedJobs:
    """List the jobs that this server keeps, newest first, without their results."""
    jobs = [one for one in call.served.jobs.listed if request.kind in (None, one.request.kind)]
    return ListedJobs(jobs=[one.listed() for one in jobs if _fault(call, one) is None])


@operation(
    "jobs.read",
    "GET /jobs/{job_id}",
    "auditor operator",
    is_immediate=True,
    awaited=Awaited(None, lambda _, job: job.status != "running"),
    example=(ReadJob(job_id=ID), _JOB),
)
def read_job(call: OperationCall, request: ReadJob) -> JobForm:
    """Return a job, with its result once it is done; with `wait`, once it has ended."""
    return job_of(call, request.job_id).shown()


@operation(
    "jobs.stream",
    "GET /jobs/{job_id}/stream",
    "auditor operator",
    is_immediate=True,
    is_stream=True,
    media=_PROGRESS,
    example=(NamedJob(job_id=ID), _JOB),
)
def stream_job(call: OperationCall, request: NamedJob) -> JobForm:
    """Stream the progress of a job (SSE); the last event, `ended`, has the result."""
    return job_of(call, request.job_id).shown()


@operation(
    "jobs.cancel",
    "POST /jobs/{job_id}:cancel",
    "auditor operator",
    is_immediate=True,
    example=(NamedJob(job_id=ID), structs.replace(_JOB, status="cancelled", ended_at=NOW)),
)
def cancel_job(call: OperationCall, request: NamedJob) -> JobForm:
    """Cancel a job; one that has ended stays as it is."""
    job_of(call, request.job_id)
    return call.served.jobs.cancel(request.job_id).shown()


_STARTS: Final[Mapping[JobKind, Declared[Any, Any]]] = {
    "verify": start_verification,
    "recheck": start_recheck,
    "whatif": start_what_if,
    "backtest": start_backtest,
}


def job_of(call: OperationCall, job_id: str) -> KeptJob:
    """Return a job of a kind that the caller may start.

    Args:
        call: the call.
        job_id: id of the job.

    Raises:
        RefusedError: ``NOT_FOUND``, ``RIGHT_MISSING``.
    """
    job = call.served.jobs.job(job_id)
    fault = _fault(call, job)
    if fault is not None:
        raise fault
    return job


def _fault(call: OperationCall, job: KeptJob) -> RefusedError | None:
    """Return why the caller may not see a job; None where it may start one of the kind."""
    from world.state.access import right_fault

    wanted = _STARTS[job.request.kind]
    found = right_fault(call.view, call.verified, wanted.rights, call.clock.now_ms())
    if found is not None:
        return RefusedError(found.code, found.message)
    if wanted.is_whole:
        try:
            call.visibility.check_whole()
        except RefusedError as refused:
            return refused
    return None
