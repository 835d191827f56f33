"""What ``worldctl run -- true`` takes beside plain ``true``, and what that time is made of."""

from __future__ import annotations

import functools
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.bench_help import worldctl
from bench.turns import command, in_turns, show

ROUNDS: Final = 9
DOMAIN: Final = '''"""A domain for measuring."""

from pydantic import BaseModel

from world.core import Domain, set_


class Shelf(BaseModel):
    """The state."""

    number: int = 0


class Wanted(BaseModel):
    """The input."""

    number: int


shelf = Domain("urn:bench:run", version="1.0.0", state=Shelf)


@shelf.action("put", version="1")
def put(ctx, wanted: Wanted):
    return [set_("number", wanted.number)]
'''
RUN: Final = ("--reads", "src/**", "--writes", "out/**", "--", "true")


def found_realm(place: Path) -> Path:
    """Found a realm with a small workspace, and return its folder."""
    folder = place / "run"
    for name in ("src", "out"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.txt").write_text("something\n")
    (folder / "shelf.py").write_text(DOMAIN)
    subprocess.run([worldctl(), "init", ".", "--domain", "shelf.py:shelf"], cwd=folder, check=True, capture_output=True)
    return folder


def measure(place: Path) -> None:
    """Print the times of whole commands, and then of the parts of one."""
    folder = found_realm(place)
    true = shutil.which("true") or "/bin/true"
    works = {
        "true": command(true),
        "python -c pass": command(sys.executable, "-c", "pass"),
        "python, and importing what it needs": command(sys.executable, "-c", IMPORTS, cwd=folder),
        "worldctl --help": command(worldctl(), "--help", cwd=folder),
        "worldctl runs": command(worldctl(), "runs", cwd=folder),
        "worldctl run --unconfined -- true": command(worldctl(), "-q", "run", "--unconfined", *RUN, cwd=folder),
        "worldctl run -- true": command(worldctl(), "-q", "run", *RUN, cwd=folder),
    }
    found = in_turns(works, ROUNDS)
    show(found, base="python -c pass")
    print(f"  worldctl run -- true is {found['worldctl run -- true'] / found['true']:,.0f} times plain true")
    print("  what it is made of, each the median:")
    told = [_parts(folder) for _ in range(ROUNDS)]
    for name in told[0]:
        print(f"    {name:<50}{statistics.median(each[name] for each in told):>10,.2f} ms", flush=True)


IMPORTS: Final = "import worldprotocol.cli.support.opening, worldprotocol.runs.command, host.builtin"


def _parts(folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.host_run", str(folder)], capture_output=True, text=True, check=True
    )
    pairs = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    return {name: float(taken) for name, taken in pairs}


class _Stopwatch:
    """Adds up what each part takes, what is measured within it taken off."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}
        self._within: list[float] = []

    def measured(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is measured."""

        @functools.wraps(work)
        def called(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            self._within.append(0.0)
            try:
                return work(*arguments, **named)
            finally:
                taken = (time.perf_counter() - begin) * 1e3
                own = taken - self._within.pop()
                self.taken[name] = self.taken.get(name, 0.0) + own
                if self._within:
                    self._within[-1] += taken

        return called

    def on(self, owner: Any, attribute: str, name: str) -> None:
        """Measure a function or method in place."""
        found = vars(owner)[attribute]
        if isinstance(found, classmethod):
            setattr(owner, attribute, classmethod(self.measured(name, found.__func__)))
        else:
            setattr(owner, attribute, self.measured(name, found))


def tell_parts(folder: Path) -> None:
    """Run ``true`` once, governed, in this process, and print what the parts took."""
    begin = time.perf_counter()
    import worldprotocol.cli.support.opening
    import worldprotocol.runs.command
    from host import builtin  # noqa: F401
    from host.backups import Backups
    from host.confinement import RunningCommand
    from world.engine.lease_commands import LeaseCommands
    from worldprotocol.api.config import read_config
    from worldprotocol.api.realm import Realm
    from worldprotocol.runs import command as running
    from worldprotocol.runs import governed
    from worldprotocol.runs.governed import GovernedRun, RunOptions
    from worldprotocol.runs.record import RunRecord

    watch = _Stopwatch()
    watch.taken["imports"] = (time.perf_counter() - begin) * 1e3
    watch.on(Realm, "from_config", "opening the realm: log, domain, handlers, recovery")
    watch.on(GovernedRun, "begin", "leases: asking and what is around it")
    watch.on(LeaseCommands, "request", "leases: the verdict and its commit")
    watch.on(Backups, "prepare", "backup: copying ahead")
    watch.on(Backups, "take", "backup: taking it")
    watch.on(governed, "take", "content: both looks")
    watch.on(running, "start", "confinement: launcher, Landlock, seccomp")
    watch.on(RunningCommand, "wait", "the command itself")
    watch.on(RunningCommand, "close", "ending what is left of it")
    watch.on(RunRecord, "_write", "record: commits")
    watch.on(GovernedRun, "open", "opening the run: the rest")
    watch.on(GovernedRun, "end", "ending the run: the rest")
    watch.on(Realm, "close", "closing the realm")
    config = read_config(folder / "world.toml")
    sys.path.insert(0, str(folder))
    with Realm.from_config(config, workspace=worldprotocol.cli.support.opening.workspace_of(config)) as world:
        premises = world.host.premises
        wanted = {"CONSUMES": "FILE:/src/*", "MUTATES": "FILE:/out/*"}
        scope = [{"predicate": predicate, "resource": resource} for predicate, resource in wanted.items()]
        manifest = {"ver": "1.0", "agent_id": "bench", "session_id": world.new_id(), "scope": scope}
        run = world.host.begin(manifest, RunOptions())
        run_options = running.CommandRunOptions(cwd=str(folder))
        result = watch.measured("the run: the rest", running.run_command)(run, premises, ["true"], run_options)
        assert result.outcome == "completed", result
    for name, taken in watch.taken.items():
        print(f"{name}\t{taken}")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        tell_parts(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            measure(Path(temporary))
