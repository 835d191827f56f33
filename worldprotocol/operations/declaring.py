"""Declaration of an operation: typed request and answer, route, rights, and the answer of a repeated request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack, get_origin, get_type_hints

from msgspec import Struct, json

if TYPE_CHECKING:
    from world.events.verification import Right
    from worldprotocol.operations.calling import OperationCall
    from worldprotocol.operations.commands import Command

__all__ = [
    "REALM",
    "AnswerForm",
    "Awaited",
    "Declared",
    "Example",
    "InHeader",
    "MediaContent",
    "MediaType",
    "Negotiated",
    "Operation",
    "Paged",
    "RequestForm",
    "Unhashed",
    "content_version",
    "operation",
]

REALM: Final = "/v1/realms/{realm}"
"""Beginning of the path of an operation on a realm."""


class RequestForm(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of requests: unknown members are refused."""


class AnswerForm(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of answers and of what they consist of: a member without a default is always shown."""


class MediaContent(AnswerForm, frozen=True, kw_only=True):
    """An answer that is text or bytes in place of JSON; ``next`` is where the next part of a list begins."""

    media_type: str
    data: bytes
    next: int | None = None


def content_version(answer: AnswerForm) -> str:
    """Return the version of an answer of which any difference is another version.

    Args:
        answer: the answer.
    """
    return sha256(answer.data if isinstance(answer, MediaContent) else json.encode(answer)).hexdigest()


class Negotiated:
    """Marks the member of a request that names the wanted media type, of which the default is the operation's first.

    Over HTTP, it is the header field ``Accept``.
    """


class Unhashed:
    """Marks a member of a request that does not belong to its meaning: ``Annotated[Seconds, Unhashed]``.

    A repeated request may have another value of it, such as another time to wait. It is a parameter of the query, also
    where the request has a body.
    """


class InHeader:
    """Marks a member that is ``Unhashed``, and a field of the header of HTTP: ``Annotated[str, InHeader("name")]``.

    Args:
        name: the field.
    """

    def __init__(self, name: str) -> None:
        self.name = name


Q = TypeVar("Q", bound=RequestForm)
A = TypeVar("A", bound=AnswerForm)
R = TypeVar("R")
Run = Callable[["OperationCall", Q], R]
Again = Callable[["OperationCall", Q, Sequence[Any]], A]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the HTTP API.

    Args:
        name: ``resource.verb``, the ``operationId``.
        method: HTTP method.
        path: path with parameters.
        rights: rights of which the caller needs one in the realm; without any, and not public, it is refused.
        summary: one line for the API description.
        is_public: whether no sign-in is needed; such an operation shows nothing of a realm but its log's id.
        is_whole: whether the result is made of many events, so that a reader with redaction is refused.
        may_wait: whether the request may wait, and is not ended by ``request_timeout_s``.
        is_personal: whether the result is about the caller, so that there is none for visitors.
    """

    name: str
    method: str
    path: str
    rights: tuple[Right, ...]
    summary: str
    is_public: bool = False
    is_whole: bool = False
    may_wait: bool = False
    is_personal: bool = False

    @property
    def route(self) -> str:
        """The path as a route: the name of a tile contains slashes."""
        return self.path.replace("{tile}", "{tile:path}")

    @property
    def is_in_realm(self) -> bool:
        """Whether it is an operation on a realm."""
        return self.path.startswith(REALM)

    @property
    def is_open(self) -> bool:
        """Whether visitors may use it in a realm whose reading is public (``[server.public]``).

        It reads, redacts event by event, and does not wait.
        """
        is_reading = self.method == "GET" and self.is_in_realm and not self.path.endswith("/stream")
        return is_reading and "reader" in self.rights and not self.is_whole and not self.is_personal

    @property
    def tag(self) -> str:
        """The resource."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Example(Generic[Q, A]):
    """An example of a request and of its answer, for the API description and for tests."""

    request: Q
    answer: A


@dataclass(frozen=True, slots=True)
class MediaType:
    """A media type of answers besides that of the example.

    Args:
        name: its name, such as ``application/cose``.
        kind: type of what it contains, for the API description.
        example: an example, for the API description.
    """

    name: str
    kind: Any
    example: Any


@dataclass(frozen=True, slots=True)
class Awaited(Generic[Q, A]):
    """What a request waits for; its member ``wait`` is the longest time, in seconds.

    Args:
        stream: the stream whose events may change the answer, or what returns that of a request and its answer; None
            where it is not the log that changes it.
        is_done: whether an answer to a request is what it waits for.
        again: returns the answer as it is now; None performs the request again.
        pause_s: returns the time after which time alone may change the answer, of a longest time, both in seconds; None
            where only events do.
    """

    stream: str | Callable[[Q, A], str] | None
    is_done: Callable[[Q, A], bool]
    again: Callable[[OperationCall, Q, A], A] | None = None
    pause_s: Callable[[OperationCall, float], float] | None = None

    def stream_of(self, request: Q, answer: A) -> str | None:
        """Return the stream whose events may change the answer to a request; None for none."""
        return self.stream(request, answer) if callable(self.stream) else self.stream


@dataclass(frozen=True, slots=True)
class Paged:
    """How a list is read in parts: the member ``next`` of an answer is where the next part begins, null at the end.

    Args:
        rows: member of the answer with the rows.
        cursor: member of the request that takes ``next`` of the answer before, or what returns that of a request.
    """

    rows: str
    cursor: str | Callable[[Any], str]

    def cursor_of(self, request: Any) -> str:
        """Return the member of a request that takes ``next`` of the answer before."""
        return self.cursor if isinstance(self.cursor, str) else self.cursor(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Operation, Generic[Q, A]):
    """An operation that was declared with its function.

    Args:
        request: type of requests; its members are parameters of the path, and of the query or the body.
        answer: type of answers.
        run: performs a request of a caller that has a right to it.
        example: a request and its answer.
        again: answer of a repeated request, from the events that the first one recorded; None repeats a write that
            finds by itself that nothing is left to do.
        is_keyed: whether it finds by itself what an equal request recorded; the key is in ``call.key``.
        interim: returns what a request that takes longer than its ``within`` has made so far, which has the id
            ``call.made_id``; None where that is nothing yet. Without it, such a request is refused.
        awaited: what a request waits for; None for one that does not wait.
        location: path below the realm of what an answer shows; None for an operation whose answers have none.
        page: how the list is read in parts; None for an answer that is whole.
        etag: version of an answer; None for an operation whose answers have none.
        status: HTTP status of an answer; None is 200.
        statuses: the statuses that ``status`` may return.
        command: the command that performs it; None for an operation without one.
        media: further media types of answers, which are ``MediaContent`` then.
        is_immutable: whether an answer, which is ``MediaContent``, never changes, so that callers may keep it.
        is_immediate: whether it neither reads the log nor waits, so that a server performs it without a thread.
        is_stream: whether what follows its answer is streamed to the caller, in a media type of ``media``.
    """

    request: type[Q]
    answer: type[A]
    run: Run[Q, A]
    example: Example[Q, A]
    again: Again[Q, A] | None = None
    is_keyed: bool = False
    interim: Callable[[OperationCall, Q], A | None] | None = None
    awaited: Awaited[Q, A] | None = None
    location: Callable[[A], str | None] | None = None
    page: Paged | None = None
    etag: Callable[[A], str] | None = None
    status: Callable[[A], int] | None = None
    statuses: tuple[int, ...] = (200,)
    command: Command[A] | None = None
    media: tuple[MediaType, ...] = ()
    is_immutable: bool = False
    is_immediate: bool = False
    is_stream: bool = False

    @property
    def unhashed(self) -> frozenset[str]:
        """Members of a request, by their names in JSON, that are marked as ``Unhashed`` or ``InHeader``."""
        return frozenset(_marked(self.request, Unhashed, InHeader))

    @property
    def negotiated(self) -> frozenset[str]:
        """Members of a request, by their names in JSON, that are marked as ``Negotiated``."""
        return frozenset(_marked(self.request, Negotiated))

    @property
    def headers(self) -> Mapping[str, str]:
        """Fields of the header by the members of a request that they have."""
        return {member: mark.name for member, mark in _marked(self.request, InHeader).items()}

    @property
    def lists(self) -> frozenset[str]:
        """Members of a request, by their names in JSON, that are lists, which a query names once for each value."""
        return _lists(self.request)

    @property
    def is_write(self) -> bool:
        """Whether it may record events, so that a caller may give a key to a request."""
        return self.method == "POST"


@cache
def _marked(request: type[RequestForm], *kinds: type) -> dict[str, Any]:
    """Return the marks of members of a request, which are of some kinds, by their names in JSON."""
    hints = get_type_hints(request, include_extras=True)
    members = zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True)
    return {
        member: mark
        for name, member in members
        for mark in getattr(hints[name], "__metadata__", ())
        if mark in kinds or type(mark) in kinds
    }


@cache
def _lists(request: type[RequestForm]) -> frozenset[str]:
    hints = get_type_hints(request)
    members = zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True)
    return frozenset(member for name, member in members if get_origin(hints[name]) is list)


Kind = Literal["whole", "personal"]


class OperationOptions(TypedDict, Generic[Q, A], total=False):
    """What an operation has besides name, route, rights and example.

    Args:
        kind: ``whole`` or ``personal``; see ``Operation``.
        again: see ``Declared``.
        answers: the answer of a write, and of its repetition, from the request alone; the function returns nothing.
        is_keyed: see ``Declared``.
        interim: see ``Declared``.
        awaited: see ``Declared``.
        location: see ``Declared``.
        page: see ``Declared``.
        etag: see ``Declared``.
        status: see ``Declared``.
        statuses: see ``Declared``.
        command: see ``Declared``.
        media: see ``Declared``.
        is_immutable: see ``Declared``.
        is_immediate: see ``Declared``.
        is_stream: see ``Declared``.
    """

    kind: Kind
    again: Again[Q, A]
    answers: Callable[[Q], A]
    is_keyed: bool
    interim: Callable[[OperationCall, Q], A | None]
    awaited: Awaited[Q, A]
    location: Callable[[A], str | None]
    page: Paged
    etag: Callable[[A], str]
    status: Callable[[A], int]
    statuses: tuple[int, ...]
    command: Command[A]
    media: tuple[MediaType, ...]
    is_immutable: bool
    is_immediate: bool
    is_stream: bool


def _answering(function: Callable[..., Any], answers: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that returns the answer which follows from its request alone."""

    @wraps(function)
    def run(call: OperationCall, request: Any) -> Any:
        function(call, request)
        return answers(request)

    return run


def operation(
    name: str, route: str, rights: str, *, example: tuple[Q, A], **options: Unpack[OperationOptions[Q, A]]
) -> Callable[[Run[Q, A] | Run[Q, A | MediaContent] | Run[Q, None]], Declared[Q, A]]:
    """Declare the decorated function as an operation; its docstring is the description, the first line the summary.

    Args:
        name: ``resource.verb``.
        route: method and path below the realm, such as ``POST /leases:release``; ``{name}`` is a member of the request.
        rights: rights of which the caller needs one, separated by spaces.
        example: a request and its answer.
        **options: see ``OperationOptions``.

    Raises:
        TypeError: an option that does not exist; ``again`` of an operation that records nothing; a page whose answers
            or requests lack its members.
    """
    unknown = options.keys() - OperationOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"{name}: there is no option {', '.join(sorted(unknown))}.")
    answers, kind, is_stream = options.get("answers"), options.get("kind"), options.get("is_stream", False)
    again = options.get("again") if answers is None else lambda _, request, __: answers(request)
    method, _, path = route.partition(" ")
    if again is not None and method != "POST":
        raise TypeError(f"{name}: `again` answers from recorded events, and only a POST records.")
    request, answer = example
    page = options.get("page")
    cursor = "" if page is None else page.cursor_of(request)
    if page is not None and not all(map(hasattr, (request, answer, answer), (cursor, page.rows, "next"))):
        raise TypeError(f"{name}: a page needs `{cursor}` of requests, and `{page.rows}` and `next` of answers.")

    def declare(function: Run[Q, A] | Run[Q, A | MediaContent] | Run[Q, None]) -> Declared[Q, A]:
        lines = (function.__doc__ or "").strip().splitlines()
        run: Any = function if answers is None else _answering(function, answers)
        return Declared(
            name=name,
            method=method,
            path=REALM + path,
            rights=tuple(rights.split()),  # type: ignore[arg-type]  # a test compares them with the rights
            summary=lines[0].rstrip("."),
            is_whole=kind == "whole",
            is_personal=kind == "personal",
            may_wait="awaited" in options or is_stream,
            request=type(request),
            answer=type(answer),
            run=run,
            example=Example(request, answer),
            again=again,
            is_keyed=options.get("is_keyed", False),
            interim=options.get("interim"),
            awaited=options.get("awaited"),
            location=options.get("location"),
            page=page,
            etag=options.get("etag"),
            status=options.get("status"),
            statuses=options.get("statuses", (200,)),
            command=options.get("command"),
            media=options.get("media", ()),
            is_immutable=options.get("is_immutable", False),
            is_immediate=options.get("is_immediate", False),
            is_stream=is_stream,
        )

    return declare
