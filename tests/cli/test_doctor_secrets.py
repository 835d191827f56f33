"""``worldctl doctor --secrets`` finds what has the form of a key, says where, and shows no value."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import uuid
from pathlib import Path

import pytest

from tests.cli.realm import CliRealm, founded, sale
from tests.support.tables import for_each
from worldprotocol.analysis.secret_forms import NAMED, forms_in, json_findings, line_findings, may_hold_secrets

LETTERS = "Zx9Qm2Lk7Rt4Wv8Yp3Nb6Hc1Jd5Fg0SaTeUiVoKqXwMz"
SAMPLES = {
    "AWS access key": "AKIA" + "Q4W5E6R7T8Y9U1I2",
    "GitHub token": "ghp_" + LETTERS[:36],
    "GitLab token": "glpat-" + LETTERS[:20],
    "Slack token": "xoxb-" + "1234567890-" + LETTERS[:12],
    "Google key": "AIza" + LETTERS[:35],
    "Stripe key": "sk_live_" + LETTERS[:24],
    "sk- key": "sk-ant-api03-" + LETTERS[:40],
    "npm token": "npm_" + LETTERS[:36],
    "JSON Web Token": "eyJ" + LETTERS[:20] + ".eyJ" + LETTERS[:20] + "." + LETTERS[:20],
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "password in an address": "postgresql://ann:" + LETTERS[:10] + "@db.example/x",
    "Authorization value": "Bearer " + LETTERS[:24],
}
HARMLESS = [
    hashlib.sha256(b"x").hexdigest(),
    str(uuid.UUID(int=12345678901234567890)),
    "Bearer ${secret:API_TOKEN}",
    "Bearer ***",
    "postgresql://ann:***@db.example/x",
    "postgresql://ann:${secret:PASSWORD}@db.example/x",
    "https://example.com:8080/a@b",
    "task-force-of-the-whole-department",
    "the basic idea of it",
]


@for_each("form", SAMPLES)
def test_every_form_is_found_in_events_and_in_lines(form: str) -> None:
    value = SAMPLES[form]
    for text in (value, f"see {value} there"):
        state = json.dumps({"a": [{"note": text}]}).encode()
        assert may_hold_secrets(state)
        assert list(json_findings(json.loads(state))) == [("$.a[0].note", form)]
        assert form in set(line_findings(f"note = {text}"))


@pytest.mark.parametrize("text", HARMLESS)
def test_hashes_ids_references_and_masks_are_not_reported(text: str) -> None:
    assert list(forms_in(text)) == []
    assert list(json_findings({"note": text})) == []
    assert list(line_findings(f"note = {text}")) == []


@pytest.mark.parametrize("text", HARMLESS[:4])
def test_what_is_no_secret_is_none_under_the_name_of_a_token_either(text: str) -> None:
    assert list(json_findings({"token": text, "secret": text})) == []


@for_each(
    ("name", "value", "is_found"),
    [
        ("password", "hunter22", True),
        ("dbPassword", "hunter22", True),
        ("password", "***", False),
        ("password", "${secret:PASSWORD}", False),
        ("password", "", False),
        ("apiKey", LETTERS[:20], True),
        ("access_token", LETTERS[:20], True),
        ("token", "aaaaaaaaaaaaaaaaaaaaaaaa", False),
        ("token", hashlib.sha256(b"x").hexdigest(), False),
        ("fencingToken", "17", False),
        ("keyId", LETTERS[:20], False),
        ("tokenizer", LETTERS[:20], False),
    ],
)
def test_a_value_is_found_by_its_name_where_it_is_a_literal(name: str, value: str, is_found: bool) -> None:
    expected = [(f"$.{name}", NAMED)] if is_found else []
    assert list(json_findings({name: value})) == expected
    assert may_hold_secrets(json.dumps({name: value}).encode()) or not is_found
    assert list(line_findings(f'{name} = "{value}"')) == ([NAMED] if is_found else [])


def test_a_key_that_is_a_secret_is_not_shown_in_the_path() -> None:
    value = SAMPLES["GitHub token"]
    found = list(json_findings({value: {"x": value}}))
    assert found == [("$.***", "GitHub token"), ("$.***.x", "GitHub token")]


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    return founded(tmp_path)


def test_a_realm_without_secrets_has_none(realm: CliRealm) -> None:
    realm("submit", "--intents", "-", given=sale("ann") * 3 + sale("kid"), code=4)
    said = realm("doctor", "--secrets", "--json")
    assert said.json == {"ok": True, "counts": {"log": 0, "configuration": 0, "backups": 0}, "found": [], "more": 0}
    assert "Nothing has the form of a key" in realm("doctor", "--secrets").err


@pytest.mark.slow
def test_secrets_are_found_in_the_log_the_configuration_and_backups_and_never_shown(realm: CliRealm) -> None:
    token, key, password = SAMPLES["GitHub token"], SAMPLES["AWS access key"], "hunter-twenty-two"
    realm("submit", "--intents", "-", given=sale("ann", item=token), code=1)
    realm("actor", "add", "eve", "--kind", "human", "--name", f"Eve {token}")
    (realm.folder / "house.toml").write_text(f'# a policy\nkey = "{key}"\n')
    with (realm.folder / "world.toml").open("a") as config:
        config.write(f'# password = "{password}"\n')
    text = (realm.folder / "world.toml").read_text().replace("policies = [", 'policies = ["house.toml", ')
    (realm.folder / "world.toml").write_text(text)
    objects = realm.folder / ".klock" / "backups" / "objects" / "ab"
    objects.mkdir(parents=True)
    (objects / "abc").write_bytes(b"\x00\xff" * 700_000 + b"\n" + SAMPLES["private key"].encode() + b"\n")
    before = hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest()
    said = realm("doctor", "--secrets", "--json", code=1)
    assert [value for value in (token, key, password) if value in said.out + said.err] == []
    places = {(one["where"], one["form"]): one["place"] for one in said.json["found"]}
    assert re.fullmatch(r"event [0-9]+ \([a-z.]+\) \$\.[A-Za-z.\[\]0-9]+", places["log", "GitHub token"])
    assert places["configuration", "AWS access key"].endswith("house.toml:2")
    assert "world.toml:" in places["configuration", NAMED]
    assert places["backups", "private key"].endswith("objects/ab/abc:2")
    assert said.json["ok"] is False
    assert hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest() == before
    told = realm("doctor", "--secrets", code=1)
    assert "revoke the key" in told.err
    assert token not in told.out + told.err


def test_rebuilding_and_searching_are_two_things(realm: CliRealm) -> None:
    assert "run doctor twice" in realm("doctor", "--secrets", "--rebuild", code=2).err


@pytest.mark.slow
def test_a_search_can_be_broken_off(realm: CliRealm) -> None:
    (realm.folder / ".klock" / "backups").mkdir(parents=True)
    with (realm.folder / ".klock" / "backups" / "large").open("wb") as large:
        for _ in range(64):
            large.write(b"token = nothing to see\n" * 50_000)
    started = realm.start("doctor", "--secrets")
    assert started.stderr is not None
    while not Path(f"/proc/{started.pid}/fd").exists():
        pass
    opened = f"{realm.folder}/.klock/backups/large"
    while started.poll() is None:
        try:
            links = {str(one.readlink()) for one in Path(f"/proc/{started.pid}/fd").iterdir()}
        except OSError:
            continue
        if opened in links:
            break
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130, (out, err)
    assert "Traceback" not in err
