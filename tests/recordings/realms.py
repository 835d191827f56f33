"""The three realms whose answers are recorded: two golden logs, and one of coding agents that is kept beside this file.

``agents.jsonl`` has what no golden log has: runs, calls of tools, a shadow policy, an effect in doubt, and leases,
tokens and proposals that are open. ``python -m tests.recordings log`` plays its scenes again, with the same clock and
ids.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from unittest import mock

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.golden.garden import FOLDER as GOLDEN
from tests.golden.garden import the_same_worker
from tests.world.test_rebuilt_index import OPENED
from world.clock import Boot, ManualClock, SequentialIds
from world.events.resource_values import ObservedEffect, ResourceClaim, UndeclaredEffect
from world.events.run_events import RunClosed, RunObserved, RunOpened, RunViolated
from world.events.verification import RIGHTS
from world.klis.identity.signature import public_key
from world.pipeline.unit_of_work import UnitOfWork
from worldprotocol.agents.call_values import Allowed, ToolCall
from worldprotocol.agents.tool_calls import TIME_LIMIT_MS, ToolCalls
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log, import_log

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOMAIN = ROOT / "worldprotocol" / "templates" / "coding-agents" / "domain.yaml"
AGENTS = HERE / "agents.jsonl"
HOUR = 3_600_000
NOW = 1_700_000_000_000 + 12 * HOUR
"""The time of every recorded answer, ms since 1970: after the last event of each log."""

SECRET = "recorded-secret"
"""The secret of every token."""

ACTORS = {"all": RIGHTS, "nil": ()}
"""Actors that every realm has besides its own: one with every right, and one without any."""

CALLERS = {"garden": (), "couriers": (), "agents": ("ann", "bob", "claude", "other")}
"""Actors of each realm that get a token, too."""

LOGS = {"garden": GOLDEN / "garden-leased.jsonl", "couriers": GOLDEN / "couriers.jsonl", "agents": AGENTS}
CONFIGURED = {
    "garden": 'domain = "tests.golden.garden:garden"\npolicies = ["tests.golden.garden:rules"]\n'
    'projections = ["tests.golden.garden:sensor"]\neffects = ["tests.golden.garden:buy"]\n',
    "couriers": 'domain = "tests.golden.couriers:couriers"\neffects = ["tests.golden.couriers:EFFECTS"]\n',
    "agents": 'domain = "domain.yaml"\npolicies = ["house.toml", "strict.toml"]\n'
    'effects = ["worldprotocol.agents.tool_calls:TOOL_CALL"]\n[agents]\nroot = "project"\nwait_s = 0\n'
    '[klis]\nadministrators = "operator all"\nmin_subtree_depth = 0\n',
}
HOUSE = """\
name = "house"

[[rules]]
id = "project_files"
actions = ["file.read", "file.edit", "file.create"]
when = "!intent.input.guarded && !intent.input.hidden"
verdict = "approve"
reason = "a file of the project"

[[rules]]
id = "deletions"
actions = ["file.delete"]
verdict = "escalate"
reason = "{intent.input.path} would be deleted"

[[rules]]
id = "pins"
actions = ["mcp.pin"]
verdict = "escalate"
reason = "the tools that may be called change"
"""
POLICIES = {"house": HOUSE, "strict": HOUSE.replace('"house"', '"strict"').replace(', "file.create"', "")}


@dataclass(frozen=True)
class RecordedRealm:
    """A realm that is copied for each example.

    Args:
        folder: its configuration and its log.
        text: its whole log, as JSON lines: what is in it is known before an example runs.
        tokens: by actor, an API token.
    """

    folder: Path
    text: str
    tokens: dict[str, str]


@contextmanager
def recorded_time(seed: str = "example") -> Iterator[None]:
    """Make the clock, ids and secrets of this process the same in every run."""
    ids = SequentialIds(seed)
    keys = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(1, 100))
    with ExitStack() as stack:
        for target, made in (
            ("world.clock.SystemClock.now_ms", lambda _self: NOW),
            ("world.clock.SystemClock.boot", lambda _self: Boot("recorded", NOW)),
            ("world.clock.SystemIds.new_id", lambda _self: ids.new_id()),
            ("secrets.token_urlsafe", lambda *_: SECRET),
            ("secrets.token_bytes", lambda size: b"r" * size),
            ("cryptography.hazmat.primitives.asymmetric.ed25519.Ed25519PrivateKey.generate", lambda: next(keys)),
        ):
            stack.enter_context(mock.patch(target, made))
        stack.enter_context(the_same_worker())
        yield


def configure(name: str, folder: Path) -> None:
    """Write the configuration of a realm, and the files that it names."""
    if name == "agents":
        (folder / "project" / "src").mkdir(parents=True)
        shutil.copy(DOMAIN, folder)
        for policy, text in POLICIES.items():
            (folder / f"{policy}.toml").write_text(text, encoding="utf-8")
        (folder / "project" / "src" / "app.py").write_text("x = 1\n", encoding="utf-8")
    (folder / "world.toml").write_text(CONFIGURED[name], encoding="utf-8")


def prepared(name: str, folder: Path) -> RecordedRealm:
    """Import a log, settle what is due, and add the actors of the recordings.

    Args:
        name: one of ``LOGS``.
        folder: an empty folder.
    """
    configure(name, folder)
    with LOGS[name].open("rb") as lines:
        import_log(lines, str(folder / "world.db"))
    with recorded_time(f"prepared {name}"), Realm.from_config(read_config(folder / "world.toml")) as realm:
        realm.settle()
        for actor, rights in ACTORS.items():
            realm.register(actor, "human", binding={"kind": "auto_approve"})
            for right in rights:
                realm.access.grant(actor, right, by="operator")
        callers = (*ACTORS, *CALLERS[name])
        tokens = {one: realm.access.create_token(one, by="operator", note="recorded").token for one in callers}
    exported = BytesIO()
    with Realm.open_read_only(folder / "world.db") as realm:
        export_log(realm.log, exported)
    return RecordedRealm(folder, exported.getvalue().decode(), tokens)


def play(folder: Path) -> None:
    """Record the log of the coding agents.

    Args:
        folder: an empty folder.
    """
    configure("agents", folder)
    clock = ManualClock(NOW - 2 * HOUR, 10)
    config = read_config(folder / "world.toml")
    with (
        recorded_time(),
        Realm.from_config(config, create=True, clock=clock, ids=SequentialIds("agents")) as realm,
    ):
        _people(realm)
        _calls(realm, clock)
        _leases(realm)
        _run(realm)
        with AGENTS.open("wb") as out:
            export_log(realm.log, out)


def _people(realm: Realm) -> None:
    for name in ("ann", "bob"):
        realm.register(name, "human", binding={"kind": "auto_approve"}, name=name.title())
    for name in ("claude", "other"):
        binding = {"kind": "policy_rules", "policy": "house", "ask": ["ann"], "timeoutMs": 24 * HOUR}
        realm.register(name, "agent", binding=binding, meta={"team": "web"})
        realm.access.grant(name, "actor", by="operator")
    realm.access.grant("ann", "approver", by="operator")
    realm.access.grant("bob", "reader", by="operator", redaction=["inputs"])
    realm.access.create_token("claude", by="operator", can=["actor"], note="laptop")
    lost = realm.access.create_token("ann", by="operator")
    realm.access.revoke_token(lost.created.token_id, by="ann", reason="lost")
    keys = [realm.leases.desk.register_key("bob", public_key(bytes([n]) * 32), by="operator") for n in (1, 2)]
    realm.leases.desk.revoke_key(keys[0], by="operator", reason="lost")
    realm.shadow("strict")


def _file(path: str) -> dict[str, object]:
    return {"path": path, "tool": "Edit", "guarded": False, "hidden": False}


def _calls(realm: Realm, clock: ManualClock) -> None:
    """One call is in doubt, one is made, one is being made, one waits for ann, one was rejected by her."""
    calls = ToolCalls(realm, "claude")
    assert isinstance(calls.begin(ToolCall("doubt", "file.edit", _file("/src/lost.py"))), Allowed)
    clock.advance(TIME_LIMIT_MS + 6_000)
    realm.settle()
    calls.begin(ToolCall("made", "file.edit", _file("/src/app.py")))
    calls.report("made", {"bytes": 7})
    calls.begin(ToolCall("open", "file.create", _file("/src/new.py")))
    calls.begin(ToolCall("asked", "file.delete", _file("/src/app.py")))
    refused = calls.begin(ToolCall("refused", "file.delete", _file("/src/lib.py")))
    realm.decide(refused.proposal.proposal_id, "reject", by="ann", reason="still used")
    pins = {"git_status": {"name": "git_status", "annotations": {"readOnlyHint": True}}}
    realm.act("ann", "mcp.pin", {"server": "git", "tools": pins}, scope=["mcp"])
    realm.create_branch("plan")
    realm.act("bob", "mcp.pin", {"server": "web", "tools": {}}, scope=["mcp"], branch="plan")


def _leases(realm: Realm) -> None:
    for agent, path, waits in (("other", "/docs/*", False), ("ann", "/docs/a", False), ("claude", "/docs/b", True)):
        manifest = {
            "ver": "1.0",
            "session_id": f"s-{agent}",
            "agent_id": agent,
            "scope": [{"predicate": "MUTATES", "resource": f"FILE:{path}"}],
        }
        realm.leases.desk.request(manifest, by=agent, ttl_ms=20 * HOUR, queue=waits)


def _run(realm: Realm) -> None:
    """One run ended with a violation, another one is open."""
    declared = [ResourceClaim(predicate="MUTATES", resource="FILE:/dist/*")]
    given = {**OPENED, "agent_id": "other", "declared": declared, "kind": "command", "command": ["make"]}
    seen = ObservedEffect(predicate="MUTATES", resource="FILE:/dist/app", depth="files", count=3)
    hosts = UndeclaredEffect(
        predicate="MUTATES",
        resource="FILE:/etc/hosts",
        depth="files",
        blocked=True,
        message="not declared",
        declared=(),
    )
    events: list[RunOpened | RunObserved | RunViolated | RunClosed] = [
        RunOpened(at=NOW - HOUR, run_id="run-1", **given),
        RunObserved(at=NOW - HOUR, run_id="run-1", observed=[seen]),
        RunViolated(at=NOW - HOUR, run_id="run-1", violation=hosts),
        RunClosed(at=NOW - HOUR, run_id="run-1", outcome="violated", exit_code=2),
        RunOpened(at=NOW - HOUR, run_id="run-2", **{**given, "session_id": "t"}),
    ]
    for event in events:
        realm._acting.run(partial(_emit, event))


def _emit(event: RunOpened | RunObserved | RunViolated | RunClosed, work: UnitOfWork) -> None:
    work.emit(f"run:{event.run_id}", event)
