"""Imports the test modules of each worker process in an order of its own, and runs tests of the source in one of them.

pytest rewrites the assertions of a test module and compiles it when it is first imported, and so does every worker of a
run in a fresh clone. Each begins with a share of its own, and finds the bytecode of the other shares made by then.
The tests that read the whole source parse each module once, as far as one worker runs them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

READ_THE_SOURCE = (
    "tests/test_docs.py",
    "tests/test_language.py",
    "tests/test_signatures.py",
    "tests/test_style.py",
    "tests/world/test_typed_events.py",
)
"""Modules with tests that parse all of the source (``tests.support.syntax``)."""

LONG = (
    "tests/agents/test_living_calls.py",
    "tests/cluster/test_cluster.py",
    "tests/directory/test_moves.py",
    "tests/agents/mcp/test_endpoint.py",
    "tests/auditing/test_jobs.py",
    "tests/cli/test_sql_command.py",
    "tests/examples/test_repository.py",
    "tests/server/test_stopped_servers.py",
)
"""Modules that take long for the number of their tests; at the end of a run, one worker would be alone with them."""


def pytest_collection(session: pytest.Session) -> None:
    """Import the modules that this worker will collect, beginning with its share; errors are left to the collection."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker.startswith("gw"):
        return
    paths = list(_modules(session.config))
    first = len(paths) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in (*paths[first:], *paths[:first]):
        with contextlib.suppress(Exception):
            importlib.import_module(".".join(path.relative_to(session.config.rootpath).with_suffix("").parts))


def _modules(config: pytest.Config) -> Iterator[Path]:
    """Yield the test modules below the folders that the run names."""
    for folder in (Path(config.invocation_params.dir, argument).resolve() for argument in config.args):
        for path in sorted(folder.rglob("test_*.py")):
            if not config.hook.pytest_ignore_collect(collection_path=path, config=config):
                yield path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Under ``--dist loadfile``, give the modules that read the source to one worker, and begin with the long ones."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduling = LoadFileScheduling(config, log)
    module_of = scheduling._split_scope

    def scope_of(nodeid: str) -> str:
        module: str = module_of(nodeid)
        return READ_THE_SOURCE[0] if module in READ_THE_SOURCE else module

    assign_next = scheduling._assign_work_unit

    def assign(node: object) -> None:
        for module in reversed(LONG):
            if module in scheduling.workqueue:
                scheduling.workqueue.move_to_end(module, last=False)
        assign_next(node)

    scheduling._split_scope = scope_of
    scheduling._assign_work_unit = assign
    return scheduling
