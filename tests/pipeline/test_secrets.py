"""Secrets of effects: the log holds references and keyed digests; values are read when an effect is performed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import stat
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import BaseModel, Field, SecretStr

from host import handler
from host.secrets import EnvironmentSecrets, FolderSecrets, KeyringSecrets, Secrets
from tests.pipeline.echo import Echo
from tests.pipeline.works import check_log
from tests.pipeline.workshop import step, workshop
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.errors import RefusedError
from world.events.execution_events import EffectFulfilled, EffectRequested, EffectRetried
from world.events.resource_values import SecretDigest
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.bootstrap import secrets_of
from worldprotocol.api.config import SecretsConfig
from worldprotocol.api.realm import Realm

VALUE = 'pä"ss/wo rd&7'
TOKEN = "T0KEN-abcdefgh-12345678"
ENVIRON = {"API_TOKEN": TOKEN, "PASSWORD": VALUE, "PIN": "123", "NUMBER": "48151623"}


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


def secrets_at(address: str, **more: Any) -> Secrets:
    return Secrets([EnvironmentSecrets(tuple(ENVIRON), environ=ENVIRON)], key=Path(f"{address}.secrets-key"), **more)


def a_realm(address: str, **parts: Any) -> Realm:
    given: dict[str, Any] = {
        "clock": ManualClock(1_000, 1),
        "ids": SequentialIds(),
        "domain": workshop,
        "secrets": secrets_at(address),
        **parts,
    }
    world = Realm.create(address, **given)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    return world


@pytest.fixture
def realm(address: str) -> Iterator[Realm]:
    with a_realm(address) as world:
        yield world
    check_log(address, domain=workshop)
    for value in (TOKEN, VALUE):
        assert_absent(address, value)


def assert_absent(address: str, value: str) -> None:
    """Look for a value and its usual encodings in every byte of the log's files."""
    data = value.encode()
    forms = {data, quote(value, safe="").encode(), base64.b64encode(data)[:-4], data.hex().encode()}
    for path in Path(address).parent.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert not [form for form in forms if form in text], path


def of(world: Realm, kind: type[Any]) -> list[Any]:
    return [event for _, event in world.events() if isinstance(event, kind)]


def run(world: Realm, *steps: dict[str, Any], **declared: Any) -> Any:
    return world.act("ann", "run", {"steps": list(steps), **declared})


def test_a_reference_is_sent_as_its_value_and_recorded_as_a_reference(realm: Realm, echo: Echo) -> None:
    sent = step(
        "http.post",
        url=f"{echo.url}/api/x?k=${{secret:API_TOKEN}}",
        headers={"Authorization": "Bearer ${secret:API_TOKEN}"},
        json={"password": "${secret:PASSWORD}", "as written": "$${secret:API_TOKEN}"},
    )
    done = run(realm, sent, mutates=[f"URL:{echo.url}/api/*"])
    assert (done.status, done.error) == ("completed", None)
    (seen,) = echo.seen
    assert seen["headers"]["authorization"] == f"Bearer {TOKEN}"
    assert seen["path"] == f"/api/x?k={TOKEN}"
    assert '"as written":"${secret:API_TOKEN}"' in seen["body"]
    assert VALUE in json.loads(seen["body"])["password"]
    (asked,) = of(realm, EffectRequested)
    assert asked.requirement.params == sent["params"]
    (told,) = of(realm, EffectFulfilled)
    value = told.result.value
    assert value["json"]["headers"]["authorization"] == "Bearer ***"
    assert value["json"]["path"] == "/api/x?k=***"
    assert value["url"] == f"{echo.url}/api/x?k=***"
    assert "set-cookie" not in value["headers"]
    assert value["headers"]["x-echo"] == "Bearer ***"
    assert "***" in value["json"]["body"]


def test_the_digest_shows_to_who_has_the_key_that_the_value_was_the_same(
    realm: Realm, echo: Echo, address: str
) -> None:
    get = step("http.get", url=echo.url, headers={"X-Api-Key": "${secret:API_TOKEN}"})
    for _ in range(2):
        assert run(realm, get, consumes=[f"URL:{echo.url}/"]).status == "completed"
    first, second = (event.secrets for event in of(realm, EffectFulfilled))
    assert first == second
    key = bytes.fromhex(Path(f"{address}.secrets-key").read_text())
    digest = hmac.new(key, b"world protocol secret v1\0" + TOKEN.encode(), hashlib.sha256).hexdigest()
    assert first == [SecretDigest(name="API_TOKEN", digest=digest)]
    assert stat.S_IMODE(os.stat(f"{address}.secrets-key").st_mode) == 0o600
    assert len(key) == 32


def test_an_effect_without_secrets_records_nothing_more_and_makes_no_key(
    realm: Realm, echo: Echo, address: str
) -> None:
    assert run(realm, step("http.get", url=echo.url), consumes=[f"URL:{echo.url}/"]).status == "completed"
    states = [event.state for event in realm.log.read(0) if event.topic == "effect.fulfilled"]
    assert len(states) == 1
    assert b'"secrets"' not in states[0]
    assert not Path(f"{address}.secrets-key").exists()


def test_the_recorded_course_is_rechecked_without_any_secret(address: str, echo: Echo) -> None:
    with a_realm(address) as world:
        get = step("http.get", url=echo.url, headers={"Authorization": "Bearer ${secret:API_TOKEN}"})
        assert run(world, get, consumes=[f"URL:{echo.url}/"]).status == "completed"
    with open_to_recheck(address, domain=workshop) as opened:
        assert recheck(opened).ok
    assert len(echo.seen) == 1


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("NOWHERE", "SECRET_NOT_FOUND", ["NOWHERE", "environment"]),
        ("PIN", "SECRET_TOO_SHORT", ["PIN", "6 characters"]),
        ("a b", "SECRET_REFERENCE_INVALID", ["${secret:NAME}"]),
    ],
)
@pytest.mark.slow
def test_a_secret_that_cannot_be_used_fails_the_effect_before_anything_is_sent(
    realm: Realm, echo: Echo, name: str, code: str, words: list[str]
) -> None:
    get = step("http.get", url=echo.url, headers={"Authorization": f"${{secret:{name}}} ${{secret:API_TOKEN}}"})
    failed = run(realm, get, consumes=[f"URL:{echo.url}/"])
    assert (failed.status, failed.error.code) == ("failed", code)
    assert all(word in failed.error.message for word in words)
    assert echo.seen == []


LITERALS: list[tuple[str, dict[str, Any]]] = [
    ("headers.Authorization", step("http.get", url="http://127.0.0.1:9/", headers={"Authorization": TOKEN})),
    ("headers.cookie", step("http.post", url="http://127.0.0.1:9/", headers={"cookie": f"a={TOKEN}"})),
    ("headers.X-API-Key", step("http.get", url="http://127.0.0.1:9/", headers={"X-API-Key": TOKEN})),
    ("url (password of the user)", step("http.get", url=f"http://ann:{TOKEN}@127.0.0.1:9/")),
    ("url (parameter access_token)", step("http.get", url=f"http://127.0.0.1:9/?a=1&access_token={TOKEN}")),
    ("url (parameter api_key)", step("http.get", url=f"http://127.0.0.1:9/?api%5Fkey={TOKEN}")),
]


@pytest.mark.parametrize(("field", "wrong"), LITERALS, ids=[one[0] for one in LITERALS])
def test_a_literal_in_a_secret_field_of_an_input_is_refused_and_nothing_is_recorded(
    realm: Realm, field: str, wrong: dict[str, Any]
) -> None:
    before = realm.log.head()
    with pytest.raises(RefusedError) as refused:
        run(realm, wrong, consumes=["URL:http://127.0.0.1:9/"])
    assert refused.value.code == "LITERAL_SECRET"
    assert refused.value.details["fields"] == [f"input.steps[0].params.{field}"]
    assert "${secret:NAME}" in refused.value.message
    assert realm.log.head() == before


class Desk(BaseModel):
    told: list[Any] = []


class Login(BaseModel):
    password: SecretStr
    pin: SecretStr | None = None
    codes: list[SecretStr] = []
    note: str = ""


class Wire(BaseModel):
    password: SecretStr = Field(alias="passWord")
    other: str = Field("", json_schema_extra={"secret": True})


office = Domain("urn:test:office", version="1.0.0", state=Desk)


@office.action("login", version="1")
def login(ctx: ActionContext, input: Login) -> Any:  # noqa: A002
    told = yield effect("door.open", passWord=input.password.get_secret_value(), note=input.note)
    return [set_("told", [told])]


@office.action("careless", version="1")
def careless(ctx: ActionContext) -> Any:
    told = yield effect("door.open", passWord=TOKEN)
    return [set_("told", [told])]


@office.action("careless_other", version="1")
def careless_other(ctx: ActionContext) -> Any:
    told = yield effect("door.open", passWord="${secret:API_TOKEN}", other=TOKEN)
    return [set_("told", [told])]


@office.action("keep", version="1")
def keep(ctx: ActionContext, input: Login) -> Any:  # noqa: A002
    return [set_("told", [str(input.password), input.password.get_secret_value()])]


class DoorInput(Wire):
    note: str = ""


def door(opened: list[str]) -> Any:
    @handler("door.open", input=DoorInput)
    def open_door(params: DoorInput, call: Any) -> Any:
        opened.append(params.password.get_secret_value())
        if params.note == "raise":
            raise ValueError(f"wrong password {params.password.get_secret_value()}")
        if params.note == "number":
            return {"n": int(params.password.get_secret_value()), "list": [params.password.get_secret_value()]}
        if params.note == "cut":
            return [
                "and so on " + params.password.get_secret_value()[:9],
                params.password.get_secret_value()[-9:] + " it went",
            ]
        return {params.password.get_secret_value(): base64.b64encode(f"ann:{opened[-1]}".encode()).decode()}

    return open_door


@pytest.fixture
def opened() -> list[str]:
    return []


@pytest.fixture
def desk(address: str, opened: list[str]) -> Iterator[Realm]:
    with a_realm(address, domain=office, effects=[door(opened)]) as world:
        yield world
    check_log(address, domain=office)
    for value in (TOKEN, VALUE):
        assert_absent(address, value)


def test_a_secret_field_of_an_action_takes_a_reference_alone(desk: Realm, opened: list[str]) -> None:
    done = desk.act("ann", "login", {"password": "${secret:API_TOKEN}"})
    assert (done.status, opened) == ("completed", [TOKEN])
    before = desk.log.head()
    given = {"password": "${secret:API_TOKEN}"}
    for wrong, field in (
        ({"password": TOKEN}, "input.password"),
        ({**given, "pin": TOKEN}, "input.pin"),
        ({**given, "codes": ["${secret:API_TOKEN}", TOKEN]}, "input.codes.1"),
        ({"password": 48151623}, "input.password"),
    ):
        with pytest.raises(RefusedError) as refused:
            desk.act("ann", "login", wrong)
        assert (refused.value.code, refused.value.details["fields"]) == ("LITERAL_SECRET", [field])
    assert desk.log.head() == before


def test_the_schema_marks_secret_fields_and_only_these() -> None:
    fields = office.schema.actions["login"].spec["input"]["schema"]["properties"]
    secret = {"type": "string", "secret": True}
    assert fields["password"] in (secret, {"anyOf": [secret, {"type": "null"}], "default": None})
    assert fields["pin"] in (secret, {"anyOf": [secret, {"type": "null"}], "default": None})
    assert "secret" not in repr(fields["note"])


@pytest.mark.parametrize(("action", "field"), [("careless", "$.passWord"), ("careless_other", "$.other")])
def test_a_literal_that_an_action_computes_ends_the_proposal_before_it_is_recorded(
    address: str, desk: Realm, opened: list[str], action: str, field: str
) -> None:
    failed = desk.act("ann", action)
    assert failed.error is not None
    assert (failed.status, failed.error.code) == ("failed", "LITERAL_SECRET")
    assert field in failed.error.message
    assert (opened, of(desk, EffectRequested)) == ([], [])
    with open_to_recheck(address, domain=office, effects=[door([])]) as again:
        assert recheck(again).ok


@pytest.mark.parametrize("note", ["raise", "cut", "base64"])
def test_nothing_that_comes_back_holds_the_value(desk: Realm, note: str) -> None:
    desk.act("ann", "login", {"password": "${secret:API_TOKEN}", "note": note})
    (told,) = of(desk, EffectFulfilled)
    text = str(told.result)
    assert "***" in text
    assert [part for part in (TOKEN, TOKEN[:9], TOKEN[-9:]) if part in text] == []
    assert told.secrets is not None


def test_a_number_that_is_a_secret_is_masked(desk: Realm) -> None:
    desk.act("ann", "login", {"password": "${secret:NUMBER}", "note": "number"})
    (told,) = of(desk, EffectFulfilled)
    assert told.result.value == {"n": "***", "list": ["***"]}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (step("http.get", url="http://127.0.0.1:9/a/${secret:API_TOKEN}/x"), "SECRET_IN_RESOURCE"),
        (step("http.get", url="http://127.0.0.1:9/a/${secret:PASSWORD}"), "SECRET_IN_RESOURCE"),
        (step("process.run", argv=["${secret:API_TOKEN}"], cwd="/sub"), "SECRET_IN_RESOURCE"),
        (step("file.write", path="/sub/${secret:API_TOKEN}", text="x"), "SECRET_IN_RESOURCE"),
    ],
)
def test_what_names_a_resource_must_not_depend_on_a_secret(
    address: str, tmp_path: Path, wrong: dict[str, Any], code: str
) -> None:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    with a_realm(address, workspace=tmp_path / "ws") as world:
        failed = run(
            world,
            wrong,
            consumes=["URL:http://127.0.0.1:9/a/*"],
            mutates=["FILE:/sub/*"],
            provides=["PROCESS:${secret:API_TOKEN}"],
        )
        assert failed.error is not None, failed.status
        assert failed.error.code == code
    assert_absent(address, TOKEN)
    assert_absent(address, VALUE)


def test_a_password_that_would_end_the_host_is_not_sent_to_another_one(address: str) -> None:
    environ = {"PASSWORD": "1234567/x"}
    store = Secrets([EnvironmentSecrets(("PASSWORD",), environ=environ)])
    with a_realm(address, secrets=store) as world:
        get = step("http.get", url="http://127.0.0.2:${secret:PASSWORD}@127.0.0.1:9/")
        failed = run(world, get, consumes=["URL:http://127.0.0.1:9/"])
        assert failed.error.code in {"SECRET_IN_RESOURCE", "EFFECT_INVALID_INPUT"}
        (told,) = of(world, EffectFulfilled)
        assert told.secrets is None


def test_a_path_with_a_secret_is_refused_by_name(address: str) -> None:
    with a_realm(address) as world:
        failed = run(
            world,
            step("http.get", url="http://127.0.0.1:9/a/${secret:API_TOKEN}"),
            consumes=["URL:http://127.0.0.1:9/a/*"],
        )
        assert failed.error.code == "SECRET_IN_RESOURCE"
        assert failed.error.context == {"names": ["API_TOKEN"]}


def test_a_secret_that_is_bound_to_a_place_is_sent_nowhere_else(address: str, echo: Echo) -> None:
    bound = secrets_at(address, uses={"API_TOKEN": ["URL:https://api.example.com/*"]})
    with a_realm(address, secrets=bound) as world:
        get = step("http.get", url=echo.url, headers={"Authorization": "${secret:API_TOKEN}"})
        failed = run(world, get, consumes=[f"URL:{echo.url}/"])
        assert failed.error.code == "SECRET_NOT_ALLOWED"
        assert echo.seen == []
        other = step("http.get", url=echo.url, headers={"Authorization": "${secret:PASSWORD}"})
        assert run(world, other, consumes=[f"URL:{echo.url}/"]).error.code == "EFFECT_INVALID_INPUT"  # no header
        assert_absent(address, VALUE)


def test_a_command_gets_the_value_and_its_output_is_masked(address: str, tmp_path: Path) -> None:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    with a_realm(address, workspace=tmp_path / "ws") as world:
        script = "import os, sys; print(os.environ['KEY'], sys.stdin.read()); print(os.environ['KEY'], file=sys.stderr)"
        command = step(
            "process.run",
            argv=[sys.executable, "-c", script],
            env={"KEY": "${secret:API_TOKEN}"},
            stdin="${secret:PASSWORD}",
            cwd="/sub",
        )
        done = run(world, command, provides=[f"PROCESS:{Path(sys.executable).name}"], mutates=["FILE:/sub/*"])
        assert (done.status, done.error) == ("completed", None)
        (told,) = of(world, EffectFulfilled)
    value = told.result.value
    assert value["stdout"] == "*** ***\n"
    assert value["stderr"] == "***\n"
    assert [one.name for one in told.secrets] == ["API_TOKEN", "PASSWORD"]
    assert_absent(address, TOKEN)


def test_a_redirect_that_carries_a_token_is_recorded_without_it(realm: Realm, echo: Echo) -> None:
    done = run(realm, step("http.get", url=f"{echo.url}/moved"), consumes=[f"URL:{echo.url}/moved"])
    assert done.status == "completed"
    (told,) = of(realm, EffectFulfilled)
    assert told.result.value["url"] == f"{echo.url}/landed?access_token=***"


def test_an_error_that_shows_what_was_sent_is_masked(realm: Realm, echo: Echo) -> None:
    get = step("http.get", url=f"{echo.url}/refused/x?k=${{secret:API_TOKEN}}")
    failed = run(realm, get, consumes=[f"URL:{echo.url}/refused/*"])
    assert failed.error.code == "HTTP_STATUS"
    assert "k=***" in failed.error.message
    assert "k=***" in failed.error.context["body"]


def test_a_failure_that_is_retried_names_the_secrets_too(address: str, opened: list[str]) -> None:
    tries: list[int] = []

    @handler("door.open", input=DoorInput, idempotent=True, retries=1, backoff_ms=1)
    def again(params: DoorInput, call: Any) -> Any:
        tries.append(1)
        raise RuntimeError(params.password.get_secret_value())

    with a_realm(address, domain=office, effects=[again], clock=None) as world:
        world.act("ann", "login", {"password": "${secret:API_TOKEN}"})
        world.close()
        with Realm.open_read_only(address) as after:
            (retried,) = of(after, EffectRetried)
    assert retried.secrets[0].name == "API_TOKEN"
    assert "***" in retried.error.message
    assert_absent(address, TOKEN)


def test_a_folder_gives_one_secret_per_file_that_only_its_owner_may_read(tmp_path: Path) -> None:
    source = FolderSecrets(tmp_path)
    assert source.read("TOKEN") is None
    path = tmp_path / "TOKEN"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    tmp_path.chmod(0o755)
    assert source.read("TOKEN") == TOKEN
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(RefusedError) as refused:
            source.read("TOKEN")
        assert (refused.value.code, f"{mode:04o}" in refused.value.message) == ("SECRET_UNREADABLE", True)
        assert TOKEN not in refused.value.message
    tmp_path.chmod(0o700)  # as container platforms mount secrets: readable files in a closed folder
    path.chmod(0o444)
    assert source.read("TOKEN") == TOKEN
    os.mkfifo(tmp_path / "PIPE")
    with pytest.raises(RefusedError, match="not a regular file"):
        source.read("PIPE")


def test_sources_are_asked_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "BOTH").write_text("from the folder")
    (tmp_path / "BOTH").chmod(0o600)
    environment = EnvironmentSecrets(prefix="S_", environ={"S_BOTH": "from the environment", "OTHER": "hidden value"})
    folder = FolderSecrets(tmp_path)
    assert Secrets([environment, folder]).value_of("BOTH") == "from the environment"
    assert Secrets([folder, environment]).value_of("BOTH") == "from the folder"
    with pytest.raises(RefusedError) as refused:
        Secrets([environment, folder]).value_of("OTHER")
    assert refused.value.details["looked_in"] == ["environment variable S_OTHER", f"file {tmp_path / 'OTHER'}"]


def test_a_keyring_is_asked_for_its_service_and_the_secrets_name(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("keyring")
    kept = {("shop", "TOKEN"): TOKEN}
    setattr(library, "get_password", lambda service, name: kept.get((service, name)))  # noqa: B010 - a module has no such name
    monkeypatch.setitem(sys.modules, "keyring", library)
    source = KeyringSecrets("shop")
    assert (source.read("TOKEN"), source.read("OTHER")) == (TOKEN, None)
    assert source.location_of("TOKEN") == "keyring service shop"


def test_the_configuration_composes_the_sources_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o700)
    (tmp_path / "kept" / "TOKEN").write_text(TOKEN)
    told = SecretsConfig(order=["folder", "environment"], folder="kept", prefix="NOT_SET_").in_folder(tmp_path)
    store = secrets_of(told, str(tmp_path / "w.db"), tmp_path)
    assert store.value_of("TOKEN") == TOKEN
    assert store.key_file == tmp_path / "w.db.secrets-key"
    with pytest.raises(RefusedError) as refused:
        store.value_of("OTHER")
    assert refused.value.details["looked_in"] == [
        f"file {tmp_path / 'kept' / 'OTHER'}",
        "environment variable NOT_SET_OTHER",
    ]
