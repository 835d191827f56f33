"""Founds a realm for the pages of records: policies with versions and a shadow, runs, and texts that others chose."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.cli.realm import CliRealm
from tests.pages.fleet import fleet, handlers
from tests.pages.fleet_of import FLEET, MINUTE, deployment
from tests.server.served import Place
from world.clock import ManualClock
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

NASTY: Final = (
    '<script>alert(1)</script>--><img src=x onerror=alert(2)>" onmouseover="alert(3)" x=\'{{ 7 * 7 }}'
    "</style></textarea><script>alert(4)</script>&lt;b&gt;\u202eevil\u2066\u200f\u200b\u200d\ufeffשלום مرحبا"
    + "𝕏" * 40
    + "x" * 300
)
"""A text that tries to leave its place: markup, quotes, both directions, characters of no width, very long words."""

CONTROLS: Final = "\x07\x1b[2J\x7f\x9b\r\n"
"""Control characters, which ids and resources cannot contain."""

ACTORS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "ann": ("human", ("approver", "reader", "actor")),
    "aud": ("human", ("auditor",)),
    "ops": ("human", ("operator",)),
    "all": ("human", ("approver", "reader", "operator", "actor", "auditor")),
    "bot": ("agent", ("actor", "reader")),
}
ADMINISTRATORS: Final = "operator all"
POLICY: Final = {"kind": "policy_rules", "policy": "limits", "timeoutMs": 86_400_000, "onTimeout": "reject"}
ASKED: Final = {"verdict": "escalate", "to": ["ann", "all"]}


def rules(limit: int, words: str, *, moon: bool) -> str:
    """Return a policy file: small deployments pass, others are reviewed."""
    written: list[dict[str, Any]] = [
        {
            "id": "small_pass",
            "verdict": "approve",
            "when": f"intent.input.replicas < {limit}",
            "reason": f"small{words}",
        },
        {"id": "large_reviewed", **ASKED, "when": f"intent.input.replicas >= {limit}", "reason": f"large{words}"},
        {"id": "no_empty_image", "verdict": "reject", "when": 'intent.input.image == ""', "reason": f"no image{words}"},
    ]
    if moon:
        when = 'has(intent.input.region) && intent.input.region == "moon"'
        written.append(
            {"id": "no_moon", "verdict": "reject", "when": when, "reason": f"there is no region moon{words}"}
        )
    return json.dumps({"name": "limits", "rules": written}, ensure_ascii=False)  # JSON is YAML, too


def founded_records(folder: Path, words: str = "", server: str = "") -> Place:
    """Found the realm, two hours ago, and write its configuration.

    Args:
        folder: where log, policies and configuration go.
        words: what follows every name, reason and text.
        server: further lines of the section ``[server]``.
    """
    place = Place(folder, str(folder / "world.db"))
    clock = ManualClock(time.time_ns() // 1_000_000 - 120 * MINUTE, step_ms=40)
    limits = Limits(klis=KlisSettings.read({"administrators": ADMINISTRATORS}))
    file = folder / "limits.yaml"
    plain = "".join(one for one in words if one.isprintable() or one == "\u202e").replace("{", "(").replace("}", ")")
    (folder / "shadow.yaml").write_text(rules(2, plain, moon=False).replace('"limits"', '"stricter"'))
    options: dict[str, Any] = {"effects": handlers, "limits": limits, "clock": clock, "domain": fleet}
    options["policies"] = [str(file), str(folder / "shadow.yaml")]
    file.write_text(rules(4, plain, moon=False))
    with Realm.create(place.log, **options) as realm:
        for name, (kind, rights) in ACTORS.items():
            binding: Any = POLICY if kind == "agent" else {"kind": "auto_approve"}
            realm.register(name, kind, binding=binding, name=f"{name}{words}"[:400])  # type: ignore[arg-type]
            for right in rights:
                realm.access.grant(name, right, by="operator")  # type: ignore[arg-type]
            place.tokens[name] = realm.access.create_token(name, by="operator").token
        realm.retire_policy("stricter", by="all", reason=f"it only shadows{words}")
        for replicas in (1, 3, 5):
            realm.act("bot", "service.deploy", deployment("search", replicas, notice=f"on {replicas}{words}"))
            clock.advance(MINUTE)
    file.write_text(rules(6, plain, moon=True))
    with Realm.open(place.log, on_change="hold", **options) as realm:
        realm.adopt_policy("limits", by="all")
        realm.shadow("stricter", by="all")
        for replicas in (1, 3, 5, 7):
            realm.act("bot", "service.deploy", deployment("mail", replicas), note=f"planned{words}"[:900])
            clock.advance(MINUTE)
        realm.act("bot", "service.deploy", deployment("rover", 1, region="moon"))
        branch = f"canary/{'x' * min(len(words), 190)}"
        realm.create_branch(branch, by="ops")
        realm.act("ann", "service.deploy", deployment("checkout", 9, notice=words), branch=branch)
        _leases(realm, plain)
    (folder / "world.toml").write_text(
        f"log = {json.dumps(place.log)}\ndomain = '{FLEET}:fleet'\npolicies = ['limits.yaml', 'shadow.yaml']\n"
        f"effects = ['{FLEET}:handlers']\n[klis]\nadministrators = '{ADMINISTRATORS}'\n"
        f"[checkpoint]\norigin = 'example.com/fleet'\nkey = 'checkpoint.key'\n"
        f"[server]\nburst = 10000\nrequests_per_second = 10000\n{server}\n",
        encoding="utf-8",
    )
    cli = CliRealm(folder)
    cli("checkpoint", "keygen", "example.com/fleet", "-o", "checkpoint.key")
    _runs(cli, plain)
    return place


def _leases(realm: Realm, words: str) -> None:
    """Let one agent hold two files, and an older one wait for one of them."""
    desk, day = realm.leases.desk, 86_400_000
    places = [f"FILE:/docs/plan{words[:80]}", "FILE:/docs/notes"]
    desk.request(_manifest("ann", "read", "FILE:/docs/other"), by="ann", ttl_ms=day)
    desk.request(_manifest("all", "edit", *places), by="all", ttl_ms=day)
    desk.request(_manifest("ann", "rename", places[0]), by="ann", ttl_ms=day, queue=True)


def _manifest(agent: str, session: str, *resources: str) -> dict[str, Any]:
    scope = [{"predicate": "MUTATES", "resource": one} for one in resources]
    return {"ver": "1.0", "agent_id": agent, "session_id": session, "scope": scope}


def _runs(cli: CliRealm, words: str) -> None:
    """Run a command that keeps to what it declared, and one that does not."""
    (cli.folder / "plan.txt").write_text("one\n")
    argv = ("--", "sh", "-c")
    cli("run", "--agent", "bot", "--writes", "plan.txt", "--reads", "notes/**", *argv, "echo two > plan.txt", words)
    cli("run", "--agent", "bot", "--reads", "plan.txt", *argv, "echo three > plan.txt", words, code=120)
