"""The worked example: its domain, its policy on chosen cases, its import, and the import that is killed."""

from __future__ import annotations

import random
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.repository import demo, history
from examples.repository.account import account_of, differences, proposal_of
from examples.repository.branches import branch, scope_of
from examples.repository.domain import entry_of, repository
from examples.repository.effects import messages, outbox
from examples.repository.history import DAY_MS, ORIGIN_MS, Session, read_sessions
from examples.repository.importing import KEEP_MS, SCHEDULER, WORLD_NAME, Import, old_tombstones
from examples.repository.killing import ROOT, kill_import
from examples.repository.rules import EXPERIENCED, MAINTAINER, WIDE
from examples.repository.timing import HistoryClock, HistoryIds, intent_id_of
from host import EffectCallInfo, EffectFailure, EffectResult
from projections import NoIntent, ProjectionRequest, Select, guarded
from tests.cli.inside import ended
from tests.plugins.forms import scaled
from world.code.references import load_reference
from world.core import ComputeContext, Invocation, compute, genesis
from world.errors import RefusedError
from world.events.execution_events import EffectFulfilled, EffectRequested
from world.events.proposal_events import ProposalSubmitted
from world.model.actor import ActorRef
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent
from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm

BRANCHES = 150
OPS = ["add", "change", "delete", "rename"]
PATHS = ["/README", "/docs/a.rst", "/docs/b.c/d.rst", "/.github/x.yml", "/src/a.py"]
BRANCH = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(OPS), min_size=1)
PREDICATES = {"add": "PROVIDES", "change": "MUTATES", "delete": "DELETES", "rename": "RENAMES"}


class Story:
    """A short history that a test tells branch by branch, under the example's own policy and domain."""

    def __init__(self, folder: Path) -> None:
        self.running = Import(folder, [self._session("nobody", "add /start")])
        self.told = 0

    @property
    def realm(self) -> Realm:
        return self.running.realm

    def branch(self, agent: str, *changes: str, role: str = "contributor", days: int = 1) -> Proposal:
        """Merge a branch of changes such as ``add /docs/a.rst`` some days later, and return its proposal."""
        if agent not in self.realm.realm().actors:
            self.realm.register(agent, "agent", binding=self._binding, meta={"role": role})
        self.told += 1
        self.running.clock.move_to(self.running.clock.now_ms() + days * DAY_MS)
        session = self._session(agent, *changes, at=self.running.clock.now_ms(), name=f"s-ff{self.told:010d}")
        received = self.realm.project(session.event, agent)
        assert received.proposal is not None
        return received.proposal

    @property
    def _binding(self) -> Mapping[str, Any]:
        return self.realm.realm().bindings[SCHEDULER]

    @staticmethod
    def _session(agent: str, *changes: str, at: int = ORIGIN_MS, name: str = "s-0000000000") -> Session:
        pairs = [change.split(" ", 1) for change in changes]
        scope = tuple({"predicate": PREDICATES[op], "resource": f"FILE:{path}"} for op, path in pairs)
        return Session(name, agent, at, at, scope)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    told = Story(tmp_path)
    with told.realm:
        yield told


def reason(proposal: Proposal) -> str:
    """Return why a proposal was decided, or whom it waits for."""
    record, asked = proposal.decision, proposal.asked
    return record.reason if record is not None else asked.reason if asked is not None else ""


def error_code(proposal: Proposal) -> str:
    assert proposal.error is not None
    return str(proposal.error.code)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Import]:
    running = Import(tmp_path_factory.mktemp("undisturbed"), read_sessions(BRANCHES))
    with running.realm:
        running.run()
        yield running


# The recording, the domain, the projection


def test_the_recording_is_whole_and_in_the_order_of_merging() -> None:
    sessions = read_sessions()
    assert (len(sessions), len({one.agent for one in sessions})) == (1_722, 611)
    assert [one.end_ms for one in sessions] == sorted(one.end_ms for one in sessions)
    assert len(history.members_of(sessions)) == 7


def test_the_domain_is_valid_and_its_computed_totals_need_no_walk_over_the_tree() -> None:
    portable = repository.schema.portable
    assert sorted(portable["actions"]) == ["change.apply", "release.announce", "tombstones.sweep"]
    assert all(hash_ is not None for hash_ in repository.sources().values())
    first = genesis(repository, ComputeContext(now=0, random_seed=""), {})
    assert first.computed == {
        "computed.present": 0,
        "computed.deleted": 0,
        "computed.changes": 0,
        "computed.busiest": None,
        "computed.tombstoneShare": None,
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([{"op": "delete", "path": "/a"}], "NO_SUCH_PATH"),
        ([{"op": "rename", "path": "/a"}], "NO_SUCH_PATH"),
        ([{"op": "add", "path": "/a"}, {"op": "change", "path": "/a"}], "PATH_TWICE"),
        ([{"op": "add", "path": "no/slash"}], "INVALID_INPUT"),
        ([{"op": "chmod", "path": "/a"}], "INVALID_INPUT"),
        ([], "INVALID_INPUT"),
    ],
)
def test_what_cannot_be_done_to_a_tree_is_an_error_value(changes: list[dict[str, str]], code: str) -> None:
    base = genesis(repository, ComputeContext(now=0, random_seed=""), {})
    told = {"session": "s-1", "by": "ann", "at": 5, "changes": changes}
    done = compute(repository, base, Invocation("change.apply", told, "i"), ComputeContext(1, "i"), {})
    assert done.error is not None
    assert done.error.code == code


@given(st.lists(BRANCH, max_size=12))
def test_the_counts_are_always_those_of_a_walk_over_the_tree(branches: list[dict[str, str]]) -> None:
    snapshot = genesis(repository, ComputeContext(now=0, random_seed=""), {})
    applied = 0
    for at, changes in enumerate(branches):
        told = {
            "session": f"s-{at}",
            "by": "ann",
            "at": at,
            "changes": [{"op": o, "path": p} for p, o in changes.items()],
        }
        done = compute(repository, snapshot, Invocation("change.apply", told, f"i{at}"), ComputeContext(at, "i"), {})
        if done.error is None:
            snapshot, applied = done.snapshot, applied + len(changes)
    entries = [entry for area in snapshot.data["areas"].values() for entry in area["files"].values()]
    assert snapshot.computed["computed.present"] == sum(entry["present"] for entry in entries)
    assert snapshot.computed["computed.deleted"] == sum(not entry["present"] for entry in entries)
    assert snapshot.computed["computed.changes"] == sum(entry["changes"] for entry in entries) == applied


def request(payload: Any, meta: Mapping[str, Any] | None = None) -> ProjectionRequest:
    first = genesis(repository, ComputeContext(now=0, random_seed=""), {})
    actor = ActorRef.read({"actorId": "ann", "kind": "agent", "meta": meta})
    source = SourceEvent.read({"kind": "api", "eventId": "e", "payload": payload})
    return ProjectionRequest("schema", SnapshotView(first.data, first.computed), actor, source)


@pytest.mark.requirement("INT-11.1", "INT-9.2")
def test_the_projection_is_pure_and_proposes_the_narrowest_scope() -> None:
    for session in read_sessions(40):
        result = guarded(branch, request(session.event.payload))
        assert isinstance(result, Select)
        paths = [triple["resource"].removeprefix("FILE:") for triple in session.scope]
        assert result.body.scope_proposal == scope_of(paths)
    assert scope_of(["/docs/api.rst", "/.github/a.yml"]).allowed_paths == (
        r"data.areas.docs.files./docs/api\.rst",
        r"data.areas.\.github.files./\.github/a\.yml",
        r"data.areas.\.github.counts",
        r"data.areas.docs.counts",
    )
    assert isinstance(guarded(branch, request({"ping": True})), NoIntent)


# The policy


@pytest.mark.requirement("CARD-policy")
def test_documentation_is_approved_at_once_however_wide(story: Story) -> None:
    done = story.branch("ann", *[f"add /docs/{number}.rst" for number in range(WIDE + 5)])
    assert (done.status, reason(done)) == ("completed", "documentation_is_welcome: documentation only")
    assert story.realm.snapshot().computed["computed.present"] == WIDE + 5


@pytest.mark.requirement("CARD-policy")
def test_a_wide_change_waits_for_the_maintainer(story: Story) -> None:
    asked = story.branch("ann", *[f"add /tests/{number}.py" for number in range(WIDE + 1)])
    assert asked.asked is not None
    assert asked.asked.ask == (MAINTAINER,)
    assert "wide_changes_are_looked_at" in reason(asked)
    assert story.branch("ann", *[f"add /tests/{number}.py" for number in range(WIDE)]).status == "completed"


@pytest.mark.requirement("CARD-policy")
def test_a_newcomer_asks_before_changing_the_core_and_is_none_after_some_completed_changes(story: Story) -> None:
    assert story.branch("ann", "add /src/a.py").status == "evaluating"
    for number in range(EXPERIENCED):
        assert story.branch("ann", f"add /tests/{number}.py").status == "completed"
    assert story.branch("ann", "add /src/b.py").status == "completed"
    assert story.branch("bob", "change /src/b.py").status == "evaluating"


@pytest.mark.requirement("CARD-policy")
def test_only_members_change_the_workflows(story: Story) -> None:
    refused = story.branch("ann", "add /.github/workflows/tests.yaml", "add /docs/a.rst")
    assert refused.status == "rejected"
    record = refused.decision
    assert record is not None
    assert [(told.rule, told.answer) for told in record.trace if told.decisive] == [
        ("workflows_are_for_members", "reject")
    ]
    assert len(record.trace) == 8
    assert story.branch("max", "add /.github/workflows/tests.yaml", role="member").status == "completed"


@pytest.mark.requirement("CARD-policy")
def test_nobody_proposes_a_branch_in_anothers_name(story: Story) -> None:
    story.branch("ann", "add /docs/a.rst")
    told = {"session": "s-9", "by": "ann", "at": 1, "changes": [{"op": "change", "path": "/docs/a.rst"}]}
    story.realm.register("eve", "agent", binding={"kind": "policy_rules", "policy": "repository"})
    refused = story.realm.act("eve", "change.apply", told)
    assert refused.status == "rejected"
    assert "signed by ann" in reason(refused)


@pytest.mark.requirement("WP-exec")
def test_deleting_what_does_not_exist_is_approved_and_fails_without_moving_the_branch(story: Story) -> None:
    story.branch("ann", "add /docs/a.rst")
    head = story.realm.branch().head
    failed = story.branch("ann", "delete /docs/b.rst", "change /docs/a.rst")
    assert (failed.status, error_code(failed)) == ("failed", "NO_SUCH_PATH")
    assert story.realm.branch().head == head
    assert story.branch("ann", "rename /docs/a.rst", "add /docs/c.rst").status == "completed"
    counts = story.realm.data()["areas"]["docs"]["counts"]
    assert counts == {"present": 1, "deleted": 1, "changes": 3}


@pytest.mark.requirement("INT-13.3", "INT-13.5")
def test_what_the_maintainer_narrows_cannot_write_outside_of_it(story: Story) -> None:
    asked = story.branch("ann", "add /src/a.py", "add /docs/a.rst")
    failed = story.realm.decide(
        asked.proposal_id, "narrow", by=MAINTAINER, scope=scope_of(["/docs/a.rst"]), reason="without the core"
    )
    assert (failed.status, error_code(failed)) == ("failed", "SCOPE_VIOLATION")
    assert failed.approved_scope == scope_of(["/docs/a.rst"])
    assert story.realm.data()["areas"] == {}


@pytest.mark.requirement("WP-decision")
def test_what_the_maintainer_leaves_unread_is_rejected_when_its_time_is_over(story: Story) -> None:
    asked = story.branch("ann", "add /src/a.py")
    story.branch("bob", "add /docs/a.rst", days=366)
    late = story.realm.proposal(asked.proposal_id)
    assert late.status == "rejected"
    assert "did not decide" in reason(late)


# Clean-ups and their effect


@pytest.mark.requirement("INT-8.2", "INT-13.3", "IC-effects")
def test_the_scheduler_sweeps_old_tombstones_within_a_narrowed_scope_and_says_so(story: Story, tmp_path: Path) -> None:
    story.branch("ann", "add /docs/a.rst", "add /docs/b.rst")
    story.branch("ann", "delete /docs/a.rst")
    story.branch("ann", "delete /docs/b.rst", days=400)
    before = story.running.clock.now_ms() - KEEP_MS
    paths = old_tombstones(story.realm.data(), before)
    assert paths == ["/docs/a.rst"]
    wide = ["data.areas.*"]
    done = story.realm.act(SCHEDULER, "tombstones.sweep", {"before": before, "paths": paths}, scope=wide)
    assert done.status == "completed"
    assert done.intent.meta.origin.projection_id.startswith("system:")
    assert done.approved_scope == scope_of(paths)
    assert entry_of(story.realm.data(), "/docs/a.rst") is None
    assert story.realm.data()["areas"]["docs"]["counts"] == {"present": 0, "deleted": 1, "changes": 4}
    assert [message["paths"] for message in messages(tmp_path)] == [paths]


@pytest.mark.requirement("CARD-policy")
def test_nobody_else_sweeps_and_nothing_alive_is_swept(story: Story, tmp_path: Path) -> None:
    story.branch("ann", "add /docs/a.rst")
    told = {"before": 2**45, "paths": ["/docs/a.rst"]}
    assert "scheduler's business" in reason(story.realm.act("ann", "tombstones.sweep", told))
    assert "no tombstone" in reason(story.realm.act(SCHEDULER, "tombstones.sweep", told))
    assert messages(tmp_path) == []


def test_a_message_is_never_sent_twice_under_one_key(tmp_path: Path) -> None:
    def call(key: str) -> EffectCallInfo:
        return EffectCallInfo("notify.maintainer", key, "i", "p", 0, 1_000, lambda: pytest.fail("nobody looks"))

    notify = outbox(tmp_path)
    assert [notify({"subject": "s"}, call(key)) for key in ("a", "b", "a")] == [
        EffectResult({"message": 1}),
        EffectResult({"message": 2}),
        EffectResult({"message": 1}),
    ]
    assert [message["key"] for message in messages(tmp_path)] == ["a", "b"]
    unwritable = outbox(tmp_path / "missing")({"subject": "s"}, call("c"))
    assert isinstance(unwritable, EffectFailure)
    assert unwritable.code == "OUTBOX_UNWRITABLE"


# The import


@pytest.mark.requirement("INT-14.1", "CARD-log", "INT-12.2")
def test_every_imported_branch_is_a_proposal_and_none_is_lost(undisturbed: Import) -> None:
    account = account_of(undisturbed.realm)
    assert [one.session for one in undisturbed.sessions if intent_id_of(one.session) not in account.ends] == []
    assert dict(account.statuses) == EXPECTED
    waiting = {proposal.intent.intent_id for proposal in undisturbed.realm.inbox()}
    assert waiting == account.ends.keys() - account.decisions.keys()
    computed = undisturbed.realm.snapshot().computed
    entries = [entry for area in undisturbed.realm.data()["areas"].values() for entry in area["files"].values()]
    assert computed["computed.present"] == sum(entry["present"] for entry in entries)
    assert computed["computed.deleted"] == sum(not entry["present"] for entry in entries)


@pytest.mark.requirement("CARD-audit")
def test_who_touched_a_path_last_is_told_by_state_proposal_and_decision(undisturbed: Import) -> None:
    world = undisturbed.realm
    entry = entry_of(world.data(), "/flask.py")
    assert entry is not None
    proposal = proposal_of(world, intent_id_of(entry["session"]))
    assert proposal.submitted.actor.actor_id == entry["by"]
    assert proposal.status == "completed"
    assert proposal.decision is not None
    assert proposal.world_id is not None
    assert entry_of(world.data(proposal.world_id), "/flask.py") == entry


@pytest.mark.requirement("INT-6.1.2")
def test_importing_again_finds_everything_there_and_adds_nothing(undisturbed: Import) -> None:
    head = undisturbed.realm.log.head()
    folder = undisturbed.folder
    again = Import(folder, undisturbed.sessions)
    with again.realm:
        again.run()
        assert again.realm.log.head() == head
        again.ids.about(undisturbed.sessions[0].session)
        with pytest.raises(RefusedError) as refused:
            again.realm.project(undisturbed.sessions[0].event, undisturbed.sessions[0].agent)
        assert refused.value.code == "INTENT_ALREADY_SUBMITTED"
        assert again.realm.log.head() == head


@pytest.mark.requirement("CARD-replay", "WP-exec", "HC-journal")
@pytest.mark.slow
def test_an_import_killed_anywhere_and_continued_gives_the_same_worlds(undisturbed: Import, tmp_path: Path) -> None:
    points = sorted(random.sample(range(1, BRANCHES - 1), 2))
    for after in points:
        kill_import(tmp_path, branches=BRANCHES, after=after)
    continued = Import(tmp_path, undisturbed.sessions)
    with continued.realm:
        assert points[-1] <= len(continued.done) <= BRANCHES
        continued.run()
        found = differences(account_of(undisturbed.realm), account_of(continued.realm))
        assert found == [], f"killed after {points}"
        check_effects(continued.realm)
    assert messages(tmp_path) == messages(undisturbed.folder)


def check_effects(world: Realm) -> None:
    events = [event for _, event in world.events()]
    asked = {event.requirement.id for event in events if isinstance(event, EffectRequested)}
    answered = [event.requirement_id for event in events if isinstance(event, EffectFulfilled)]
    assert sorted(answered) == sorted(asked)


@pytest.mark.requirement("CARD-audit", "CARD-replay")
@pytest.mark.slow
def test_all_that_the_demo_checks_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(tmp_path / "demo", branches=scaled(len(read_sessions()), ci=BRANCHES)) == 0
    held = str([line for line in capsys.readouterr().out.splitlines() if line.startswith("   ok ")])
    words = ("lost", "decision", "worldIds", "was sent once", "verify", "replay", "recheck", "got one mail")
    assert [word for word in words if word not in held] == []


def test_the_demo_says_plainly_what_did_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for costly in ("_kill", "announce", "_govern"):
        monkeypatch.setattr(demo.Demo, costly, lambda self: None)
    # So few branches refuse nothing and sweep nothing; all else holds for them, too.
    assert demo.main(tmp_path / "demo", branches=30) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED: ")]
    assert failed == [
        "FAILED: a rule of the policy refuses at least one proposal",
        "FAILED: each of the 0 messages to the maintainer was sent once",
    ]


# Time, ids and the configuration


def test_ids_about_a_subject_are_the_same_in_every_run_and_fresh_without_one() -> None:
    runs = []
    for _ in range(2):
        ids = HistoryIds(HistoryClock(1_000))
        ids.about("s-1")
        runs.append([ids.intent_id(), ids.new_id(), ids.new_id()])
        assert runs[-1][0] == intent_id_of("s-1")
        ids.about(None)
        assert len({ids.new_id() for _ in range(10)} | {ids.intent_id()} | set(runs[-1])) == 14
    assert runs[0] == runs[1]


def test_the_clock_of_a_history_never_goes_back() -> None:
    clock = HistoryClock(1_000)
    clock.move_to(500)
    assert clock.now_ms() == 1_000


def test_the_configuration_names_the_parts_that_the_import_uses(undisturbed: Import) -> None:
    folder = Path(history.__file__).parent
    told = tomllib.loads((folder / "world.toml").read_text(encoding="utf-8"))
    assert load_reference(told["domain"]) is repository
    assert [load_reference(one) for one in told["projections"]] == [branch]
    policies = {one.name: one.hash for one in map(load_reference, told["policies"])}
    assert policies == {name: one.policy_hash for name, one in undisturbed.realm.realm().policies.items()}
    assert [one.type for one in load_reference(told["effects"][0])] == ["notify.maintainer", "mail.send"]
    assert (folder / told["log"]).resolve() == folder.parents[1] / "build" / "demo" / WORLD_NAME


@pytest.mark.slow
def test_every_worldctl_command_of_the_readme_works_and_changes_no_byte(undisturbed: Import) -> None:
    readme = (Path(history.__file__).parent / "README.md").read_text(encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in readme.splitlines() if line.startswith("    worldctl ")]
    assert len(commands) == 10
    address = undisturbed.folder / WORLD_NAME
    before = address.read_bytes()
    for command in commands:
        said = ended(ROOT, [*command, "--log", str(address)], "", {})
        assert said.code == 0, f"{command}: {said}"
        assert (said.out + said.err).strip(), command
    assert address.read_bytes() == before


def test_no_state_holds_anything_of_the_wall_clock(undisturbed: Import) -> None:
    latest = undisturbed.sessions[-1].end_ms
    entries = [entry for area in undisturbed.realm.data()["areas"].values() for entry in area["files"].values()]
    assert max(entry["at"] for entry in entries) <= latest
    submitted = [event for _, event in undisturbed.realm.events() if isinstance(event, ProposalSubmitted)]
    assert max(event.at for event in submitted) == latest


EXPECTED = {"completed": 138, "failed": 9, "rejected": 4}
"""How the first branches and one clean-up end under the example's policy: 7 delete what is not there, 2 write what the
maintainer left out; she rejects one and leaves two unread for a year, and a rule rejects one."""
