"""Programs that know nothing of the engine work on one checkout at the same time, under ``worldctl run``.

    python -m examples.repository.programs FOLDER

Ann's and Bob's programs both read the change log, think, and write all of it back: what loses the other's entry where
nothing keeps them apart. A third program does its task, and then something that it did not declare.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from world.events.lease_events import VerdictGiven
from world.read_models.decoding import decoded
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.cli.program import run as worldctl
from worldprotocol.runs import read_verification
from worldprotocol.runs.command import confinement_support

SHARED: Final = Path(__file__).with_name("shared")
"""What is copied: ``world.toml``, the domain, and the checkout that the programs work on."""

VIOLATED: Final = 120
"""The exit code of ``worldctl run`` where a command went beyond its scope."""

PATIENCE_S: Final = 60.0
"""How long the demo waits for something that must happen, in seconds."""

CHANGES: Final = ("--writes", "CHANGES.rst")
IN_PYTHON: Final = ("--reads", "tools/changelog.py", *CHANGES, "--", sys.executable, "-I", "tools/changelog.py")
IN_SHELL: Final = ("--reads", "tools/changelog.sh", *CHANGES, "--", "sh", "tools/changelog.sh")

Check = Callable[[bool, str], None]
"""Called with the result of a check and its description."""


class Programs:
    """A checkout with its realm, and the programs that work on it."""

    def __init__(self, folder: Path, check: Check, *, unconfined: bool = False) -> None:
        """Found a realm in a folder of its own; what an earlier demo left there goes.

        Args:
            folder: where the realm and its checkout are made.
            check: called with each result.
            unconfined: run the programs without confinement, as is done anyway where the kernel has none.
        """
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SHARED, folder)
        self.config = folder.resolve() / "world.toml"
        self.checkout = folder.resolve() / "checkout"
        self.why_not = "Confinement is not wanted." if unconfined else confinement_support().why_not
        self._check = check
        Realm.from_config(read_config(self.config), create=True).close()

    def edit_at_once(self) -> None:
        """Run two programs that edit one file at the same time, and check that no change is lost."""
        with ExitStack() as running:
            ann = running.enter_context(self._program("ann", *IN_PYTHON, "Cookies are signed."))
            ann.expect("read")
            bob = running.enter_context(self._program("bob", "--retry", *IN_SHELL, "Sessions expire."))
            died = self._await_verdict("bob", "Die")
            print("   ann's program holds the file; bob's is younger, so it died and tries again")
            ann.go_on()
            bob.expect("read")
            again = running.enter_context(self._program("ann", *IN_PYTHON, "Signals are sent."))
            waited = self._await_verdict("ann", "Wait")
            print("   now bob's program holds it; ann's next one is older, so it waits\n")
            self.show("waits")
            bob.go_on()
            again.expect("read")
            again.go_on()
            codes = [program.wait() for program in (ann, bob, again)]
        self._check(codes == [0, 0, 0], "all three programs ended well")
        entries = (self.checkout / "CHANGES.rst").read_text(encoding="utf-8").splitlines()[-3:]
        wanted = ["- Cookies are signed.", "- Sessions expire.", "- Signals are sent."]
        self._check(entries == wanted, "the change log has the entries of all three, none was lost")
        print()
        self.show("explain", died)
        print()
        self.show("explain", waited)

    def go_too_far(self) -> None:
        """Run a program that does what it did not declare, and check that it is stopped and undone."""
        if self.why_not is not None:
            print(f"   {self.why_not} So it runs --unconfined, and its changes are found by content.")
        before = self._content()
        scope = ("--reads", "tools/tidy.sh", "--writes", "docs/**")
        with self._program("eve", *scope, "--", "sh", "tools/tidy.sh") as eve:
            print(*(f"   {line}" for line in eve.finish()), sep="\n")
        self._check(eve.wait() == VIOLATED, f"worldctl run ends with {VIOLATED}")
        workflow, after = ".github/workflows/ci.yml", self._content()
        touched = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        if self.why_not is None:
            self._check(workflow not in touched, f"its write to {workflow} was stopped before it happened")
        else:
            self._check(workflow in touched, f"its write to {workflow}, which has no backup, was found")
        self._check(touched <= {workflow}, "what it had changed in docs before was given back")
        run_id = self._last_run()
        print()
        self.show("show", run_id)

    def tell_all(self) -> None:
        """Show every verdict from the log, and check that it is whole and that each verdict follows from it."""
        self.show("log", "--topic", VerdictGiven.TOPIC)
        print()
        self.show("verify")
        with Realm.from_config(read_config(self.config)) as realm:
            rechecked = recheck(realm, every=True)
        self._check(rechecked.ok, "recheck: every verdict follows from the leases that were held when it was given")

    def show(self, *arguments: str) -> None:
        """Run a command line of ``worldctl``, print it with what it printed, and check that it ends well."""
        print(f"   $ worldctl {' '.join(arguments)}")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = worldctl(["--config", str(self.config), *arguments])
        print(*(f"   {line}".rstrip() for line in said.getvalue().splitlines()), sep="\n")
        if code != 0:
            self._check(False, f"worldctl {arguments[0]} ends with {code}")

    @contextmanager
    def _program(self, agent: str, *arguments: str) -> Generator[Program, None, None]:
        how = [] if self.why_not is None else ["--unconfined"]
        command = [sys.executable, "-m", "worldprotocol", "--config", str(self.config), "run", "--agent", agent, *how]
        with Program([*command, *arguments], self.checkout) as program:
            print(f"   $ worldctl run --agent {agent} {' '.join(shown(arguments))}", flush=True)
            yield program

    def _await_verdict(self, agent: str, status: str) -> str:
        """Wait until an agent was given a verdict, and return its id."""
        until = time.monotonic() + PATIENCE_S
        with Realm.open_read_only(read_config(self.config).log_address) as realm:
            while time.monotonic() < until:
                for logged in realm.log.read(topics=[VerdictGiven.TOPIC]):
                    event = decoded(logged)
                    if isinstance(event, VerdictGiven) and (event.agent_id, event.status) == (agent, status):
                        return event.verdict_id
                time.sleep(0.02)
        raise RuntimeError(f"{agent} did not get the verdict {status!r} within {PATIENCE_S:.0f} seconds.")

    def _last_run(self) -> str:
        with Realm.open_read_only(read_config(self.config).log_address) as realm:
            run_id = str(realm.archive.rows("runs", {"most": 1, "before": 1 << 40})[0][0])
            record = read_verification(realm.archive, run_id)
        self._check(
            [one.resource for one in record.violations] == ["FILE:/.github/workflows/ci.yml"]
            and [one.blocked for one in record.violations] == [self.why_not is None]
            and "/docs/index.rst" in record.rollbacks[0].restored,
            "the log holds the one violation and the rollback",
        )
        return run_id

    def _content(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.checkout)): path.read_bytes()
            for path in self.checkout.rglob("*")
            if path.is_file() and ".klock" not in path.parts
        }


class Program:
    """A program in a process of its own, under ``worldctl run``; a context manager ends it, whatever happens."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Start it in a folder."""
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Program:
        """Return it, running."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it where it has not ended."""
        self._process.terminate()
        self._process.communicate()

    def expect(self, line: str) -> None:
        """Read what it says up to a line.

        Raises:
            RuntimeError: it ended before it said so.
        """
        assert self._process.stdout is not None
        said: list[str] = []
        for one in self._process.stdout:
            if one.strip() == line:
                return
            said.append(one)
        raise RuntimeError(f"A program ended before it said {line!r}: {''.join(said)}")

    def go_on(self) -> None:
        """Press Enter."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self) -> list[str]:
        """Return what it says until its end."""
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        return said.splitlines()

    def wait(self) -> int:
        """Return its exit code when it has ended."""
        return self._process.wait(PATIENCE_S)


def shown(arguments: Sequence[str]) -> Iterator[str]:
    """Yield arguments as people would write them."""
    for one in arguments:
        plain = "python" if one == sys.executable else one
        yield f"'{plain}'" if any(letter in plain for letter in " *") else plain


def main(folder: Path) -> int:
    """Show all of it; returns the exit code."""
    failures: list[str] = []

    def check(holds: bool, sentence: str) -> None:
        print(f"   {'ok    ' if holds else 'FAILED'} {sentence}")
        if not holds:
            failures.append(sentence)

    programs = Programs(folder, check)
    programs.edit_at_once()
    print()
    programs.go_too_far()
    print()
    programs.tell_all()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
