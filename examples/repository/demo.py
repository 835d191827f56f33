"""The demo: sixteen years of a project's merged branches through the governed pipeline, from the first to the last.

    python -m examples.repository.demo

founds a world in ``build/demo``, imports the history, shows the result, verifies it, kills an import in the middle
and continues it, replays, rechecks, and compares the worlds. It announces a release in a process that is killed after
the mail was sent and before its result was recorded, and resolves the doubt. Then programs that know nothing of all
this work on one checkout at the same time. It ends with exit code 0 only if all of it held.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from examples.repository.account import Account, account_of, differences, proposal_of
from examples.repository.announcing import RELEASE, announce_and_die
from examples.repository.domain import entry_of
from examples.repository.effects import DEMO, MAILING_LIST_NAME, messages
from examples.repository.history import Session, read_sessions
from examples.repository.importing import WORLD_NAME, Import, Progress
from examples.repository.killing import kill_import
from examples.repository.programs import Programs
from examples.repository.rules import MAINTAINER
from examples.repository.show import show_blame, show_counts, show_refusal, show_stretch, show_world
from examples.repository.timing import intent_id_of
from world.audit.replay import replay
from world.audit.verify import verify
from world.errors import WorldProtocolError
from world.state.proposal import Proposal
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.api.realm import Realm

LAST_TOUCHED = ("/src/flask/app.py", "/flask.py")
"""The path whose last change is explained: the first of them in the tree."""

SHARED_NAME = "shared"
"""The folder of the programs and their checkout, in that of the demo."""


class Demo:
    """Goes through the steps and remembers what did not hold."""

    def __init__(self, folder: Path, sessions: list[Session]) -> None:
        """Import these branches into a folder; what an earlier demo left there goes."""
        self.folder = folder
        self.sessions = sessions
        self.killed = folder / "killed"
        self.failures: list[str] = []
        self._steps = 0
        shutil.rmtree(folder, ignore_errors=True)

    def step(self, title: str) -> None:
        """Begin a step."""
        self._steps += 1
        print(f"\n{self._steps}. {title}\n")

    def check(self, holds: bool, sentence: str) -> None:
        """Say whether something held."""
        print(f"   {'ok    ' if holds else 'FAILED'} {sentence}")
        if not holds:
            self.failures.append(sentence)

    def run(self) -> None:
        """Go through all steps."""
        account = self.import_all()
        self._repeat(account)
        self.announce()
        self._govern()

    def import_all(self) -> Account:
        """Import the branches into a realm that the maintainer may look at, show it, and return how they ended."""
        with self._imported() as realm:
            account = account_of(realm)
            self._show(realm, account)
            self._check_import(realm, account)
            self._check_log(realm)
            for right in ("approver", "reader"):
                realm.access.grant(MAINTAINER, right, by="operator")
            return account

    def _repeat(self, account: Account) -> None:
        self._kill()
        with self._continued() as realm:
            self._compare(account, account_of(realm))
            self._check_effects()
            self._check_log(realm)
            self._replay(realm)
            self._recheck(realm)

    def _imported(self) -> Realm:
        agents = len({one.agent for one in self.sessions})
        self.step(f"Founding the realm: {agents} agents, a maintainer, a scheduler, one policy")
        started = time.perf_counter()
        running = Import(self.folder, self.sessions)
        seconds = time.perf_counter() - started
        print(f"   {running.realm.log.head().size} events in {seconds:.1f} s, in {self.folder / WORLD_NAME}")
        self.step(f"Importing {len(self.sessions)} merged branches as source events")
        started = time.perf_counter()
        with progress("importing") as rendered:
            running.run(rendered)
        seconds = time.perf_counter() - started
        print(f"   {len(self.sessions)} branches in {seconds:.1f} s, {len(self.sessions) / seconds:.0f} a second")
        return running.realm

    def _show(self, realm: Realm, account: Account) -> None:
        self.step("The result")
        show_counts(realm, account)
        self.step("A stretch of the log")
        show_stretch(realm, 14)
        self.step("One world")
        show_world(realm, account.completed[len(account.completed) // 2])
        self.step("A refused proposal, with what every rule said of it (* decided)")
        refused = refused_by_a_rule(realm, account)
        if refused is None:
            self.check(False, "a rule of the policy refuses at least one proposal")
        else:
            show_refusal(refused)
        self.step("Who touched a path last")
        known = [path for path in LAST_TOUCHED if entry_of(realm.data(), path) is not None]
        for path in known[:1]:
            show_blame(realm, path)

    def _check_import(self, realm: Realm, account: Account) -> None:
        self.step("Is every branch accounted for, and is the log what it should be?")
        lost = [one.session for one in self.sessions if intent_id_of(one.session) not in account.ends]
        self.check(not lost, f"every one of the {len(self.sessions)} branches is a proposal in the log, none was lost")
        waiting = {proposal.intent.intent_id for proposal in realm.inbox()}
        self.check(
            waiting == account.ends.keys() - account.decisions.keys(),
            f"every proposal has its one decision, but for the {len(waiting)} in the maintainer's inbox",
        )

    def _check_log(self, realm: Realm) -> None:
        started = time.perf_counter()
        with progress("verifying") as rendered:
            report = verify(realm.log, progress=rendered)
        size, seconds = realm.log.head().size, time.perf_counter() - started
        for finding in report.findings[:5]:
            print(f"          {finding.position}: {finding.message}")
        self.check(not report.findings, f"verify: {size} events, tree, references and hashes, {seconds:.1f} s")

    def _kill(self) -> None:
        self.step("Killing an import in the middle (SIGKILL, in a process of its own)")
        after = random.randrange(len(self.sessions) // 4, len(self.sessions) * 3 // 4)
        with progress("importing, to be killed") as rendered:
            done = kill_import(self.killed, branches=len(self.sessions), after=after, progress=rendered)
        with Realm.open_read_only(self.killed / WORLD_NAME) as realm:
            print(f"   killed after {done} branches; {realm.log.head().size} events are in its log")

    def _continued(self) -> Realm:
        self.step("Continuing it to the end")
        running = Import(self.killed, self.sessions)
        print(f"   {len(running.done)} branches were found in the log")
        with progress("continuing") as rendered:
            running.run(rendered)
        return running.realm

    def _compare(self, undisturbed: Account, continued: Account) -> None:
        different = differences(undisturbed, continued)
        for sentence in different:
            print(f"          {sentence}")
        self.check(
            not different,
            f"all {len(undisturbed.completed)} completed worlds have the same worldIds as in the undisturbed log, "
            f"and all {len(undisturbed.decisions)} decisions are the same",
        )

    def _check_effects(self) -> None:
        mine, others = messages(self.folder), messages(self.killed)
        once = len({message["key"] for message in others}) == len(others)
        same = [message["paths"] for message in mine] == [message["paths"] for message in others]
        self.check(bool(mine) and once and same, f"each of the {len(mine)} messages to the maintainer was sent once")

    def _replay(self, realm: Realm) -> None:
        self.step("Replaying: all state from the events alone")
        started = time.perf_counter()
        with progress("replaying") as rendered:
            replayed = replay(realm.log, progress=rendered)
        seconds = time.perf_counter() - started
        self.check(
            replayed.realm.branches["main"].head == realm.branch("main").head
            and replayed.data["main"] == realm.data()
            and replayed.head == realm.log.head(),
            f"replay: {replayed.position} events give the same head and the same data, {seconds:.1f} s",
        )

    def _recheck(self, realm: Realm) -> None:
        self.step("Rechecking: every projection, ruling, computation and hash, again from its record")
        started = time.perf_counter()
        with progress("rechecking") as rendered:
            rechecked = recheck(realm, every=True, progress=rendered)
        seconds = time.perf_counter() - started
        for one in rechecked.divergences[:5]:
            print(f"          {one.position} {one.topic}: {one.difference.message}")
        steps = ", ".join(f"{number} {noun}" for noun, number in sorted(rechecked.steps.items()))
        self.check(rechecked.ok and bool(steps), f"recheck: {steps}, and nothing diverges, {seconds:.1f} s")

    def announce(self) -> None:
        """Announce a release in a process that is killed, and resolve the doubt that it leaves."""
        self.step("Announcing a release in a process that is killed after its mail was sent")
        announce_and_die(self.folder)
        running = Import(self.folder, self.sessions)
        with running.realm as realm:
            stuck = realm.host.stuck()
            for effect in stuck:
                print(f"   in doubt: {effect['effect']} {json.dumps(effect['params'])} of {effect['action']}")
            self.check(len(stuck) == 1, "the mail is in doubt, and was not sent again")
            if not stuck:
                return
            mails = messages(self.folder, MAILING_LIST_NAME)
            print(f"   the maintainer finds in the archive of the mailing list: {mails[-1]['subject']}")
            running.ids.about("found-in-the-archive")
            ended = realm.host.resolve(
                stuck[0]["proposalId"],
                "happened",
                by=MAINTAINER,
                reason="the mail is in the archive of the mailing list",
                value={"message": len(mails)},
            )
            self.check(
                ended.status == "completed"
                and realm.data()["releases"].keys() == {RELEASE}
                and len(messages(self.folder, MAILING_LIST_NAME)) == 1,
                f"release {RELEASE} is recorded, and its readers got one mail",
            )
            self._check_log(realm)

    def _govern(self) -> None:
        programs = Programs(self.folder / SHARED_NAME, self.check)
        self.step("Two programs edit one file at the same time, each under worldctl run")
        programs.edit_at_once()
        self.step("A third goes beyond what it declared")
        programs.go_too_far()
        self.step("Every verdict about them, from the log")
        programs.tell_all()


def refused_by_a_rule(realm: Realm, account: Account) -> Proposal | None:
    """Return the last proposal that a rule of the policy refused by itself, None where it refused none."""
    for intent, (decision, _, reason) in reversed(account.decisions.items()):
        if decision == "rejected" and reason.startswith("workflows_are_for_members"):
            return proposal_of(realm, intent)
    return None


@contextmanager
def progress(description: str) -> Generator[Progress | None, None, None]:
    """Show a bar while something runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(f"   {description}", total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def main(folder: Path = DEMO, branches: int | None = None) -> int:
    """Run the demo with all branches, or so many of the first; returns the exit code."""
    started = time.perf_counter()
    demo = Demo(folder, read_sessions(branches))
    try:
        demo.run()
    except (WorldProtocolError, RuntimeError) as error:
        demo.check(False, str(error))
    seconds = time.perf_counter() - started
    print()
    for sentence in demo.failures:
        print(f"FAILED: {sentence}")
    if not demo.failures:
        print(f"All of it held, in {seconds:.1f} s. The world stays in {demo.folder}; look at it with")
        print("   worldctl --config examples/repository/world.toml worlds")
        print("and at what the programs did with")
        print(f"   worldctl --config {demo.folder / SHARED_NAME / 'world.toml'} runs")
        print("Open its inbox, worlds, leases and log in a browser, by the link that this command prints:")
        print(f"   worldctl --config examples/repository/world.toml serve --port 0 --sign-in {MAINTAINER}")
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
