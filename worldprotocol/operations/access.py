"""Operations on access: actors and their bindings, rights, API tokens, and the keys of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.fields import ID, NOW, At, AtPoint, EventForm, Name, Reason, recorded

if TYPE_CHECKING:
    from world.events.access_events import RightGranted
    from world.klis.ledger_view import ReadableLedger
    from world.state.realm_view import RealmView

Kind = Literal["human", "agent", "system"]
RightName = Literal["reader", "actor", "approver", "operator", "auditor", "worker"]
Binding = Annotated[
    dict[str, Any], Meta(description='The authority that judges the actor, such as `{"kind": "auto_approve"}`.')
]

_AUTO: Final = {"kind": "auto_approve"}
_DAY_MS: Final = 86_400_000
LOST: Final = "The answer with the text of the token was lost."
"""Reason of the revocation of a token whose creation is repeated."""


class Actor(AnswerForm, frozen=True, kw_only=True):
    """A registered actor and its binding; null where it has none."""

    actor_id: str
    kind: str
    binding: dict[str, Any] | None
    name: str | None = None
    meta: dict[str, Any] | None = None


class Actors(AnswerForm, frozen=True, kw_only=True):
    """Registered actors, in the order of registration."""

    actors: list[Actor]


class Right(AnswerForm, frozen=True, kw_only=True):
    """A right in force; `redaction` has the rules that hide events from a reader, `since` is in ms since 1970."""

    actor_id: str
    right: str
    redaction: list[str] | None
    by: str
    since: int


class Rights(AnswerForm, frozen=True, kw_only=True):
    """Rights in force."""

    rights: list[Right]


class Key(AnswerForm, frozen=True, kw_only=True):
    """A public key of an agent, in base64."""

    key_id: str
    agent_id: str
    public_key: str
    revoked: bool


class Keys(AnswerForm, frozen=True, kw_only=True):
    """Registered keys, revoked ones too."""

    keys: list[Key]


class ActorDetails(Actor, frozen=True, kw_only=True):
    """An actor with its rights and keys."""

    rights: list[Right]
    keys: list[Key]


_BOT: Final = Actor(actor_id="bot", kind="agent", binding=_AUTO)
_RIGHT: Final = Right(actor_id="bot", right="actor", redaction=None, by="operator", since=NOW)
_KEY: Final = Key(
    key_id="k-1", agent_id="bot", public_key="W1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1s=", revoked=False
)


def _actor(view: RealmView, name: str) -> Actor:
    known = view.actors[name]
    binding: Any = view.bindings.get(name)
    wire = known.to_wire()
    return Actor(
        actor_id=known.actor_id,
        kind=known.kind,
        binding=binding,
        name=wire.get("name"),
        meta=wire.get("meta"),
    )


def _right(one: RightGranted) -> Right:
    return Right(
        actor_id=one.actor_id,
        right=one.right,
        redaction=None if one.redaction is None else list(one.redaction),
        by=one.by,
        since=one.at,
    )


def _keys(ledger: ReadableLedger) -> list[Key]:
    return [
        Key(key_id=one.key_id, agent_id=one.agent_id, public_key=one.public, revoked=one.revoked)
        for one in ledger.keys.values()
    ]


@operation("actors.list", "GET /actors", "reader auditor", kind="whole", example=(AtPoint(), Actors(actors=[_BOT])))
def list_actors(call: OperationCall, request: AtPoint) -> Actors:
    """List the registered actors with their bindings."""
    view = call.view_at(request.at)
    return Actors(actors=[_actor(view, name) for name in view.actors])


class ReadActor(RequestForm, frozen=True, kw_only=True):
    """An actor, and a point in the past; absent, now."""

    actor_id: Name
    at: At | None = None


@operation(
    "actors.read",
    "GET /actors/{actor_id}",
    "reader auditor",
    kind="whole",
    example=(
        ReadActor(actor_id="bot"),
        ActorDetails(actor_id="bot", kind="agent", binding=_AUTO, rights=[_RIGHT], keys=[_KEY]),
    ),
)
def read_actor(call: OperationCall, request: ReadActor) -> ActorDetails:
    """Return an actor with its binding, its rights and its keys."""
    view, name = call.view_at(request.at), request.actor_id
    if name not in view.actors:
        raise RefusedError(ErrorCode.NOT_FOUND, f"No actor {name[:80]!r} is registered; `GET /actors` lists them.")
    shown = _actor(view, name)
    return ActorDetails(
        actor_id=shown.actor_id,
        kind=shown.kind,
        binding=shown.binding,
        name=shown.name,
        meta=shown.meta,
        rights=[_right(one) for one in view.rights.get(name, {}).values()],
        keys=[one for one in _keys(call.moment(request.at).ledger()) if one.agent_id == name],
    )


class RegisterActor(RequestForm, frozen=True, kw_only=True):
    """An actor to register, and the binding to an authority; absent, it has none."""

    actor_id: Name
    kind: Kind
    binding: Binding | None = None
    name: Name | None = None
    meta: dict[str, Any] | None = None


class BindActor(RequestForm, frozen=True, kw_only=True):
    """An actor and the authority that judges it."""

    actor_id: Name
    binding: Binding


def _registered(call: OperationCall, request: RegisterActor | BindActor, _: Sequence[Any] = ()) -> Actor:
    return _actor(call.hosted.realm.realm(), request.actor_id)


@operation(
    "actors.register",
    "POST /actors",
    "operator",
    again=_registered,
    example=(RegisterActor(actor_id="bot", kind="agent", binding=_AUTO), _BOT),
)
def register_actor(call: OperationCall, request: RegisterActor) -> Actor:
    """Register an actor, and bind it to an authority where a binding is given."""
    call.realm.register(
        request.actor_id,
        request.kind,
        binding=request.binding,
        name=request.name,
        meta=request.meta,
        by=call.actor_id,
    )
    return _registered(call, request)


@operation(
    "actors.bind",
    "POST /actors/{actor_id}:bind",
    "operator",
    again=_registered,
    example=(BindActor(actor_id="bot", binding=_AUTO), _BOT),
)
def bind_actor(call: OperationCall, request: BindActor) -> Actor:
    """Bind an actor to the authority that judges it."""
    call.realm.bind(request.actor_id, request.binding, by=call.actor_id)
    return _registered(call, request)


@operation("rights.list", "GET /rights", "auditor operator", example=(AtPoint(), Rights(rights=[_RIGHT])))
def list_rights(call: OperationCall, request: AtPoint) -> Rights:
    """List the rights in force."""
    held = call.view_at(request.at).rights.values()
    return Rights(rights=[_right(one) for rights in held for one in rights.values()])


class GrantRight(RequestForm, frozen=True, kw_only=True):
    """A right to grant; `redaction` has rules that hide events from a reader, as `worldctl export --redact`."""

    actor_id: Name
    right: RightName
    redaction: Annotated[list[Name], Meta(max_length=100)] | None = None


class GrantedRight(AnswerForm, frozen=True, kw_only=True):
    """Whether a right was granted now; false where the actor had it with the same redaction."""

    actor_id: str
    right: str
    granted: bool


@operation(
    "rights.grant",
    "POST /rights",
    "operator",
    again=lambda _, request, __: GrantedRight(actor_id=request.actor_id, right=request.right, granted=True),
    example=(GrantRight(actor_id="bot", right="actor"), GrantedRight(actor_id="bot", right="actor", granted=True)),
)
def grant_right(call: OperationCall, request: GrantRight) -> GrantedRight:
    """Grant a right to an actor."""
    rules = request.redaction or None
    call.hosted.redactions.check(rules or ())
    is_new = call.realm.access.grant(request.actor_id, request.right, by=call.actor_id, redaction=rules)
    return GrantedRight(actor_id=request.actor_id, right=request.right, granted=is_new)


class RevokeRight(RequestForm, frozen=True, kw_only=True):
    """A right to revoke, and why."""

    actor_id: Name
    right: RightName
    reason: Reason


class RevokedRight(AnswerForm, frozen=True, kw_only=True):
    """A right that was revoked."""

    actor_id: str
    right: str
    revoked: bool


@operation(
    "rights.revoke",
    "POST /rights:revoke",
    "operator",
    answers=lambda request: RevokedRight(actor_id=request.actor_id, right=request.right, revoked=True),
    example=(
        RevokeRight(actor_id="bot", right="actor", reason="no longer needed"),
        RevokedRight(actor_id="bot", right="actor", revoked=True),
    ),
)
def revoke_right(call: OperationCall, request: RevokeRight) -> None:
    """Revoke a right of an actor."""
    call.realm.access.revoke(request.actor_id, request.right, by=call.actor_id, reason=request.reason)


class Tokens(AnswerForm, frozen=True, kw_only=True):
    """The events that created the API tokens which were not revoked."""

    tokens: list[EventForm]


@operation(
    "tokens.list",
    "GET /tokens",
    "auditor operator",
    example=(
        AtPoint(),
        Tokens(tokens=[EventForm(topic="token.created", schema_version=1, state={"tokenId": ID, "actorId": "bot"})]),
    ),
)
def list_tokens(call: OperationCall, request: AtPoint) -> Tokens:
    """List the API tokens that were not revoked; a token itself is recorded nowhere."""
    return Tokens(tokens=[recorded(one) for one in call.view_at(request.at).tokens.values()])


class CreateToken(RequestForm, frozen=True, kw_only=True):
    """Whose token, the rights that it is limited to, and how long it is valid."""

    actor_id: Name
    can: Annotated[list[RightName], Meta(min_length=1, max_length=10)] | None = None
    ttl_ms: Annotated[int, Meta(ge=1, le=3_650 * _DAY_MS, description="Time to live, in ms.")] = 90 * _DAY_MS
    note: Annotated[str, Meta(max_length=1_000)] | None = None


class CreatedToken(AnswerForm, frozen=True, kw_only=True):
    """A new API token; its text is not shown again. `expiresAt` is in ms since 1970."""

    token: str
    token_id: str
    actor_id: str
    expires_at: int


def _create_token(call: OperationCall, request: CreateToken, lost: str | None = None) -> CreatedToken:
    made = call.realm.access.create_token(
        request.actor_id, by=call.actor_id, can=request.can, ttl_ms=request.ttl_ms, note=request.note, lost=lost
    )
    one = made.created
    return CreatedToken(token=made.token, token_id=one.token_id, actor_id=one.actor_id, expires_at=one.expires_at)


@operation(
    "tokens.create",
    "POST /tokens",
    "operator",
    again=lambda call, request, _: _create_token(call, request, LOST),
    example=(
        CreateToken(actor_id="bot", can=["actor"], note="the build server"),
        CreatedToken(token=f"wp1_{ID}_W1tbW1tbW1s", token_id=ID, actor_id="bot", expires_at=NOW + 90 * _DAY_MS),
    ),
)
def create_token(call: OperationCall, request: CreateToken) -> CreatedToken:
    """Create an API token of an actor; the answer alone has its text.

    A repeated request revokes the token whose text was lost, and creates another one.
    """
    return _create_token(call, request)


class RevokeToken(RequestForm, frozen=True, kw_only=True):
    """A token to revoke, and why."""

    token_id: Name
    reason: Reason


class RevokedToken(AnswerForm, frozen=True, kw_only=True):
    """A token that was revoked."""

    token_id: str
    revoked: bool


@operation(
    "tokens.revoke",
    "POST /tokens/{token_id}:revoke",
    "operator",
    answers=lambda request: RevokedToken(token_id=request.token_id, revoked=True),
    example=(RevokeToken(token_id=ID, reason="it was lost"), RevokedToken(token_id=ID, revoked=True)),
)
def revoke_token(call: OperationCall, request: RevokeToken) -> None:
    """Revoke an API token; it verifies no caller from then on."""
    call.realm.access.revoke_token(request.token_id, by=call.actor_id, reason=request.reason)


@operation("keys.list", "GET /keys", "reader auditor", kind="whole", example=(AtPoint(), Keys(keys=[_KEY])))
def list_keys(call: OperationCall, request: AtPoint) -> Keys:
    """List the registered keys of agents, revoked ones included."""
    return Keys(keys=_keys(call.moment(request.at).ledger()))


class RegisterKey(RequestForm, frozen=True, kw_only=True):
    """An agent and its Ed25519 public key: base64 of 32 bytes."""

    agent_id: Name
    public_key: Annotated[str, Meta(max_length=100)]


class RegisteredKey(AnswerForm, frozen=True, kw_only=True):
    """A key that signs for an agent."""

    key_id: str
    agent_id: str


@operation(
    "keys.register",
    "POST /keys",
    "operator",
    again=lambda _, request, events: RegisteredKey(key_id=events[0].key_id, agent_id=request.agent_id),
    example=(
        RegisterKey(agent_id="bot", public_key=_KEY.public_key),
        RegisteredKey(key_id=_KEY.key_id, agent_id="bot"),
    ),
)
def register_key(call: OperationCall, request: RegisterKey) -> RegisteredKey:
    """Register a public key, which authenticates the manifests of an agent from then on."""
    from base64 import b64decode

    try:
        raw = b64decode(request.public_key, validate=True)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise RefusedError(
            ErrorCode.INVALID_KEY,
            f"{request.public_key[:100]!r} is not an Ed25519 public key; give base64 of its 32 bytes.",
        )
    name = call.realm.leases.desk.register_key(request.agent_id, raw, by=call.actor_id)
    return RegisteredKey(key_id=name, agent_id=request.agent_id)


class RevokeKey(RequestForm, frozen=True, kw_only=True):
    """A key to revoke, and why."""

    key_id: Name
    reason: Reason


class RevokedKey(AnswerForm, frozen=True, kw_only=True):
    """A key that was revoked."""

    key_id: str
    revoked: bool


@operation(
    "keys.revoke",
    "POST /keys/{key_id}:revoke",
    "operator",
    answers=lambda request: RevokedKey(key_id=request.key_id, revoked=True),
    example=(RevokeKey(key_id=_KEY.key_id, reason="it was stolen"), RevokedKey(key_id=_KEY.key_id, revoked=True)),
)
def revoke_key(call: OperationCall, request: RevokeKey) -> None:
    """Revoke a key for good; what it signed before stays as it is."""
    call.realm.leases.desk.revoke_key(request.key_id, by=call.actor_id, reason=request.reason)
