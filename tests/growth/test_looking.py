"""Looking at a realm takes as many steps of the database with 30 times as many past proposals.

Each command, each GET of the API, each page and each method of a reader of a realm has a place in ``looks.toml``: how
it is asked, or why its cost grows.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from tests.growth.counted import Steps, counted
from tests.growth.grown import GrownRealm, grown
from tests.pages.pages_of import PAGES_PATH
from tests.server.kiosk import handlers, kiosk
from tests.server.served import NO_TLS, PATH
from worldprotocol import Realm
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.read_only import RealmReader
from worldprotocol.cli.program import run
from worldprotocol.cli.registry import COMMANDS
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.server.app import create_app
from worldprotocol.server.operation_table import OPERATIONS
from worldprotocol.server.pages.page_table import PAGES
from worldprotocol.server.service import RealmToServe, Service

pytestmark = pytest.mark.slow

LOOKS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("looks.toml").read_text(encoding="utf-8"))
MOST = 1.3
"""Steps of the long realm, as a multiple of those of the short one."""

MOST_OF_A_PROOF = 2.5
"""The same for what proves an event: the tree of the long realm has five levels more."""

A_PROBE = 1_000
"""More than the steps of the probe of readiness, which runs beside what is counted; a past of 30 times takes more."""

ACTING = {
    *(
        "init",
        "new",
        "actor",
        "policy",
        "submit",
        "project",
        "decide",
        "branch",
        "settle",
        "resolve",
        "cancel",
        "adopt",
    ),
    *(
        "dev",
        "lease",
        "run",
        "worker",
        "feed",
        "workspace",
        "backups",
        "hooks",
        "mcp",
        "serve",
        "realm",
        "clock",
        "klis",
    ),
    *("rights", "token", "keys", "domain", "checkpoint", "simulate"),
}
"""Commands, and groups of them, that act, check files or run until they are stopped, if ``looks.toml`` says no more."""


ADVISING = ("diff", "doctor")
"""Commands that end with 1 where they found something."""


def leaves(path: str, command: click.Command) -> Iterator[str]:
    """Yield the words of a command, or of those of a group at any depth."""
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from leaves(f"{path} {name}", one)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path


@pytest.fixture(scope="session")
def realms(tmp_path_factory: pytest.TempPathFactory) -> tuple[GrownRealm, GrownRealm]:
    """Return the short and the long realm, which are made once, each with a key for checkpoints."""
    short, long = grown(tmp_path_factory.mktemp("grown"))
    for realm in (short, long):
        name = str(realm.place.folder / "grown.key")
        assert run(["checkpoint", "keygen", "example.com/grown", "-o", name, "--quiet"]) == 0
    return short, long


def test_every_command_and_read_has_a_place() -> None:
    commands = {leaf for name, entry in COMMANDS.items() for leaf in leaves(name, entry.load())}
    placed = LOOKS["commands"].keys() | LOOKS["linear"].keys()
    assert placed <= commands
    assert {leaf for leaf in commands - placed if leaf.split()[0] not in ACTING} == set()
    reads = {name for name, one in OPERATIONS.items() if one.method == "GET"}
    unread = {"errors.read", "server.health", "mcp.pins"}  # they read nothing of a log
    assert LOOKS["reads"].keys() | LOOKS["linear_reads"].keys() | unread == reads
    pages = {name for name, one in PAGES.items() if one.method == "GET" and one.operation}
    assert LOOKS["pages"].keys() | LOOKS["linear_pages"].keys() == pages
    methods = {name for name in dir(RealmReader) if not name.startswith("_")}
    assert LOOKS["methods"].keys() | LOOKS["linear_methods"].keys() == methods


def check(what: str, taken: list[int], steps: Steps) -> None:
    """Fail where the long realm took more steps than it may, by the steps of both, or read a whole table in one."""
    assert not steps.whole, (what, steps.whole)
    short, long = taken
    assert is_bounded(what, short, long), (what, short, long)


def is_bounded(what: str, short: int, long: int) -> bool:
    """Return whether the long realm took no more steps than it may."""
    proofs = LOOKS["logarithmic"]["commands"] + LOOKS["logarithmic"]["reads"]
    return long <= (MOST_OF_A_PROOF if what in proofs else MOST) * short + A_PROBE


@pytest.mark.parametrize("path", LOOKS["commands"])
def test_a_looking_command_takes_as_many_steps_with_a_long_past(
    realms: tuple[GrownRealm, GrownRealm], path: str, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    with counted(monkeypatch) as steps:
        for words in LOOKS["commands"][path]:
            taken = []
            for realm in realms:
                monkeypatch.chdir(realm.place.folder)
                steps.taken()
                steps.whole.clear()
                code = run(words.format(**realm.names).split())
                taken.append(steps.taken())
                said = capsysbinary.readouterr()
                assert code == 0 or (code == 1 and path in ADVISING and not said.err), (words, said)
            check(words, taken, steps)


@pytest.mark.parametrize("name", LOOKS["methods"])
def test_a_method_of_a_reader_takes_as_many_steps_with_a_long_past(
    realms: tuple[GrownRealm, GrownRealm], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    with counted(monkeypatch) as steps:
        for realm in realms:
            expression = LOOKS["methods"][name].format(**realm.names)
            steps.taken()
            with Realm.open_read_only(realm.place.log) as world:
                eval(expression, {"world": world})  # a row of our own table
            taken.append(steps.taken())
    check(name, taken, steps)


def test_opening_for_acting_takes_as_many_steps_with_a_long_past(
    realms: tuple[GrownRealm, GrownRealm], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    with counted(monkeypatch) as steps:
        for realm in realms:
            steps.taken()
            Realm.open(realm.place.log, domain=kiosk, effects=handlers, on_change="hold").close()
            taken.append(steps.taken())
    check("open", taken, steps)


def test_a_read_of_the_api_and_a_page_take_as_many_steps_with_a_long_past(
    realms: tuple[GrownRealm, GrownRealm], monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as steps:
        short, long = (asyncio.run(read_all(realm, steps)) for realm in realms)
    assert short.keys() == long.keys()
    assert {path: (count, long[path]) for path, count in short.items() if not is_bounded(path, count, long[path])} == {}
    assert not steps.whole


async def read_all(realm: GrownRealm, steps: Steps) -> dict[str, int]:
    """Return the steps of each read of the API and of each page, once the server has opened the realm."""
    found: dict[str, int] = {}
    with Realm.open(realm.place.log, domain=kiosk, effects=handlers, on_change="hold") as world:
        service = Service.of(ServerConfig(), [RealmToServe("main", world)])
        headers = {"Authorization": f"Bearer {realm.place.tokens['all']}"}
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://test", headers=headers, verify=NO_TLS
        ) as client:
            wanted = {"resources": ["FILE:/docs/plan"], "sessionId": "s-1"}
            own = await client.post(f"{PATH}/leases", json=wanted)  # which loads the state, too
            names = realm.names | {"own_request": own.json()["requestId"]}
            await client.get("/metrics")  # counts what has ended once, for all later calls
            for name, paths in LOOKS["reads"].items():
                for path in paths:
                    place = path.format(**names)
                    within = OPERATIONS[name].is_in_realm
                    found[path] = await taken(client, f"{PATH}{place}" if within else place, steps)
            code = service.links.create("main", "all")
            begun = await client.post(f"{PAGES_PATH}/sign-in", data={"code": code})
            assert begun.status_code == 303
            for path in (path for paths in LOOKS["pages"].values() for path in paths):
                found[f"page {path}"] = await taken(client, PAGES_PATH + path.format(**names), steps)
        await service.threads.close()
    return found


async def taken(client: httpx.AsyncClient, path: str, steps: Steps) -> int:
    """Return the steps of a GET that is answered."""
    steps.taken()
    answer = await client.get(path)
    assert answer.status_code < 300, (path, answer.text)
    return steps.taken()


def test_sql_reads_what_the_tables_of_the_query_are_made_of(
    realms: tuple[GrownRealm, GrownRealm], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(realms[0].place.folder)
    with counted(monkeypatch) as steps:

        def taken(query: str, code: int = 0) -> int:
            steps.taken()
            assert run(["sql", query, "--json"]) == code
            return steps.taken()

        nothing = taken("SELECT 1")
        assert taken("SELECT nothing of this", code=2) < nothing  # it is refused before the log is read
        events, proposals, worlds = (taken(f"SELECT count(*) FROM {one}") for one in ("events", "proposals", "worlds"))
    assert nothing < 2 * worlds < min(proposals, events)
    counts = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "count_star" in line]
    with realms[0].place.realm() as world:
        sealed = len(list(world.worlds(1 << 30)))
        assert [one["count_star()"] for one in counts] == [world.log.head().size, len(list(world.proposals())), sealed]


def test_an_import_takes_as_many_steps_for_each_event_of_a_long_log(
    realms: tuple[GrownRealm, GrownRealm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name, realm in zip(("short", "long"), realms, strict=True):
        file = tmp_path / f"{name}.jsonl"
        with realm.place.realm() as world, file.open("wb") as out:
            export_log(world.log, out)
        with counted(monkeypatch) as steps, file.open("rb") as lines:
            done = import_log(lines, str(tmp_path / f"{name}.db"))
            taken.append(steps.taken() // done.added)
    assert taken[1] <= MOST * taken[0]
