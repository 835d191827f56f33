"""Recheck, backtest and verify on a real Dask cluster: the answers of one process, whatever becomes of the workers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.inside import Inside
from tests.cli.realm import COUNTER, ROOT, CliRealm, founded, sale
from tests.cluster.dask_cluster import DaskCluster
from tests.support.patience import PATIENCE_S, until
from world.errors import RefusedError, WorldProtocolError
from worldprotocol.analysis.recheck.whole_log import RecheckSetup
from worldprotocol.analysis.work import cluster as of_cluster
from worldprotocol.analysis.work.cluster import ClusterCrew
from worldprotocol.analysis.work.work_list import TaskDone, Work, WorkList
from worldprotocol.analysis.work.workers import Workers

pytestmark = pytest.mark.slow

GOLDEN = ROOT / "tests" / "golden"
GARDEN = """\
domain = "tests.golden.garden:garden"
policies = ["tests.golden.garden:rules"]
projections = ["tests.golden.garden:sensor"]
"""
STRICT = """
name = "strict"

[[rules]]
id = "one_at_a_time"
verdict = "approve"
when = "intent.input.count <= 1"
"""


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with DaskCluster(tmp_path_factory.mktemp("dask")) as started:
        started.start_workers(2)
        yield started


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """A realm whose code has changed since, a clean one, one with another policy, and one with a forged event."""
    folder = tmp_path_factory.mktemp("realms")
    (folder / "shop").mkdir()
    shop = founded(folder / "shop", Inside)
    shop("submit", "--intents", "-", given="".join(sale("bot", count=1 + at % 3) for at in range(12)), code=4)
    shutil.copytree(shop.folder, folder / "clean")
    altered(shop, 'return [set_("sold", 0), set_(f"stock')
    (folder / "strict.toml").write_text(STRICT)
    for name in ("garden", "garden-forged"):
        (folder / name).mkdir()
        Inside(folder / name)("import", str(GOLDEN / f"{name}.jsonl"), "--log", "world.db")
        (folder / name / "world.toml").write_text(GARDEN)
    return Inside(folder)


def altered(realm: CliRealm, other: str) -> None:
    """Let ``sell`` do something else from now on, under the same schema."""
    (realm.folder / "counter.py").write_text(COUNTER.read_text().replace('return [set_(f"stock', other))
    config = realm.folder / "world.toml"
    config.write_text(config.read_text().replace(f"{COUNTER}:counter", "counter.py:counter"))


ALL = ("shop", "clean", "garden", "garden-forged")


@pytest.mark.requirement("CARD-replay")
def test_a_recheck_on_a_cluster_answers_as_one_process_and_as_each_command_alone(
    dask: DaskCluster, realms: Inside
) -> None:
    one = realms("recheck", *ALL, "--all", "--json", "--jobs", "1", code=3).json
    shared = realms("recheck", *ALL, "--all", "--json", "--executor", dask.executor, code=3).json
    assert shared == one
    assert [len(answer.get("divergences", "damaged")) for answer in shared["realms"]] == [9, 0, 1, len("damaged")]
    assert (shared["total"]["asRecorded"], shared["total"]["divergent"], shared["total"]["failed"]) == (1, 2, 1)
    for name, answer, code in zip(ALL, shared["realms"], (1, 0, 1, 3), strict=True):
        alone = realms("recheck", "--all", "--json", "--config", str(realms.folder / name / "world.toml"), code=code)
        assert answer == {"realm": name, "ok": code == 0, **alone.json}
    for wanted in (["--jobs", "1"], ["--executor", dask.executor]):
        first = realms("recheck", *ALL, "--json", *wanted, code=1).json
        assert [len(found["divergences"]) for found in first["realms"]] == [2, 0, 1, 2]
        text = realms("recheck", *ALL, *wanted, code=1).out.splitlines()
        assert [line for line in text if line.endswith(":") and not line.startswith(" ")] == [f"{one}:" for one in ALL]
        assert text[-1].startswith("4 realms: 1 as recorded, 3 with divergences, 0 failed; ")


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_a_backtest_on_a_cluster_answers_as_one_process(dask: DaskCluster, realms: Inside) -> None:
    wanted = ["policy", "backtest", "shop", "garden", "--with", str(realms.folder / "strict.toml"), "--json"]
    one, shared = (realms(*wanted, *how, code=1).lines for how in (["--jobs", "1"], ["--executor", dask.executor]))
    for name in ("shop", "garden"):
        assert [line for line in shared if line.get("realm") == name] == [
            line for line in one if line.get("realm") == name
        ]
    assert shared[-1] == one[-1]
    assert shared[-1]["flips"] == sum(line["kind"] == "flip" for line in shared) > 0
    assert (shared[-1]["realms"], shared[-1]["failed"]) == (2, 0)


@pytest.fixture
def databases(realms: Inside, postgres_url: str, tmp_path: Path) -> Inside:
    """Two of the realms, with their logs in PostgreSQL and none in a file."""
    for name in ("shop", "garden"):
        (tmp_path / name).mkdir()
        exported = tmp_path / f"{name}.jsonl"
        exported.write_text(Inside(realms.folder / name)("export").out)
        address = f"{postgres_url}#cluster-{os.getpid()}-{name}"
        Inside(tmp_path / name)("import", str(exported), "--log", address)
        config = (realms.folder / name / "world.toml").read_text()
        lines = [line for line in config.splitlines() if not line.startswith("log ")]
        (tmp_path / name / "world.toml").write_text("\n".join([f'log = "{address}"', *lines]))
        for file in (realms.folder / name).glob("*.py"):
            shutil.copy(file, tmp_path / name)
        assert not list((tmp_path / name).glob("*.db"))
    (tmp_path / "strict.toml").write_text(STRICT)
    return Inside(tmp_path)


@pytest.mark.requirement("CARD-replay", "CARD-policy")
def test_workers_read_logs_in_postgresql_and_answer_as_one_process(
    dask: DaskCluster, databases: Inside, realms: Inside
) -> None:
    names = ("shop", "garden")
    wanted = ["recheck", *names, "--all", "--json"]
    one = databases(*wanted, "--jobs", "1", code=1).json
    assert databases(*wanted, "--executor", dask.executor, code=1).json == one
    assert one == realms(*wanted, "--jobs", "1", code=1).json
    wanted = ["policy", "backtest", *names, "--with", str(databases.folder / "strict.toml"), "--json"]
    one = databases(*wanted, "--jobs", "1", code=1).lines
    shared = databases(*wanted, "--executor", dask.executor, code=1).lines
    for name in names:
        assert [line for line in shared if line.get("realm") == name] == [
            line for line in one if line.get("realm") == name
        ]
    assert shared[-1] == one[-1]
    assert shared[-1]["flips"] > 0


@pytest.mark.requirement("CARD-replay", "CARD-policy")
def test_workers_read_logs_in_parquet_files_and_answer_as_one_process(
    dask: DaskCluster, realms: Inside, tmp_path: Path
) -> None:
    for name in ("shop", "garden"):
        shutil.copytree(realms.folder / name, tmp_path / name)
        realm = Inside(tmp_path / name)
        realm("--log", "world.db", "export", "--format", "parquet", "tables")
        (tmp_path / name / "world.db").unlink()
        lines = [line for line in (realm.folder / "world.toml").read_text().splitlines() if not line.startswith("log ")]
        address = f"parquet:///{tmp_path / name / 'tables'}"
        (realm.folder / "world.toml").write_text("\n".join([f'log = "{address}"', *lines]))
    (tmp_path / "strict.toml").write_text(STRICT)
    shared = Inside(tmp_path)
    wanted = ["recheck", "shop", "garden", "--all", "--json"]
    one = realms(*wanted, "--jobs", "1", code=1).json
    assert shared(*wanted, "--jobs", "1", code=1).json == one
    assert shared(*wanted, "--executor", dask.executor, code=1).json == one
    wanted = ["policy", "backtest", "shop", "garden", "--with", str(tmp_path / "strict.toml"), "--json"]
    lines_of_one = realms(*wanted, "--jobs", "1", code=1).lines
    lines_shared = shared(*wanted, "--executor", dask.executor, code=1).lines
    for name in ("shop", "garden"):
        assert [line for line in lines_shared if line.get("realm") == name] == [
            line for line in lines_of_one if line.get("realm") == name
        ]
    assert lines_shared[-1] == lines_of_one[-1]


def test_workers_verify_logs_and_answer_as_one_process(dask: DaskCluster, realms: Inside) -> None:
    wanted = ["verify", "shop", "clean", "garden", "garden-forged", "nowhere.db", "--json"]
    one, shared = (realms(*wanted, *how, code=3).json for how in (["--jobs", "1"], ["--executor", dask.executor]))
    assert shared == one
    assert one["total"] == {"realms": 5, "sound": 3, "unsound": 1, "failed": 1}


def test_a_realm_that_cannot_be_opened_does_not_end_the_others(dask: DaskCluster, realms: Inside) -> None:
    for wanted in (["--jobs", "1"], ["--executor", dask.executor]):
        told = realms("recheck", "clean", "none.db", "--config", "shop/world.toml", "--json", *wanted, code=2).json
        assert [answer["ok"] for answer in told["realms"]] == [True, False]
        assert told["realms"][1]["error"]["code"] == "LOG_NOT_FOUND"
        assert told["total"]["failed"] == 1


@pytest.mark.requirement("CARD-replay")
def test_a_worker_that_is_killed_in_the_middle_changes_no_answer(realms: Inside, tmp_path: Path) -> None:
    waiting = (
        "import os, time; from pathlib import Path; here = Path(__file__).parent\n"
        "    if (here / 'armed').exists():\n"
        "        try:\n"
        "            (here / f'begun-{os.getppid()}').touch() if not (here / 'claimed').mkdir() else None\n"
        "            while not (here / 'killed').exists(): time.sleep(0.01)\n"
        "        except FileExistsError: pass\n"
        '    return [set_("sold", 0), set_(f"stock'
    )
    shop = realms.folder / "shop"
    altered(CliRealm(shop), waiting)
    wanted = ["recheck", *ALL, "--all", "--json"]
    one = realms(*wanted, "--jobs", "1", code=3).json
    (shop / "armed").touch()
    with DaskCluster(tmp_path) as dask:
        dask.start_workers(2)
        started = CliRealm(realms.folder).start(*wanted, "--executor", dask.executor)
        until(lambda: bool(list(shop.glob("begun-*"))))
        [begun] = shop.glob("begun-*")
        worker = int(begun.name.removeprefix("begun-"))
        assert worker in [process.pid for process in dask.processes[1:]]
        os.kill(worker, signal.SIGKILL)
        (shop / "killed").touch()
        out, err = started.communicate(timeout=PATIENCE_S)
    (shop / "armed").unlink()
    assert (started.returncode, err) == (3, "")
    assert json.loads(out) == one


def test_ctrl_c_ends_the_work_on_the_cluster_too(dask: DaskCluster, tmp_path: Path) -> None:
    founded(tmp_path, Inside)("submit", "--intents", "-", given=sale("bot") * 6)
    realm = CliRealm(tmp_path)
    altered(
        realm,
        "import os\n    open(f'{os.path.dirname(__file__)}/begun-{os.getpid()}', 'w').close()\n"
        '    while True: pass\n    return [set_(f"stock',
    )
    started = realm.start("recheck", "--executor", dask.executor)
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    running = [psutil.Process(int(file.name.removeprefix("begun-"))) for file in tmp_path.glob("begun-*")]
    os.kill(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=PATIENCE_S)
    assert (started.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert psutil.wait_procs(running, timeout=PATIENCE_S)[1] == []
    until(lambda: not any(dask.client.processing().values()))


def refused(workers: Workers, *logs: str) -> RefusedError:
    with pytest.raises(RefusedError) as found:
        workers.crew(None, logs).close()
    return found.value


def test_a_cluster_without_the_code_or_with_another_release_is_refused(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not one.name.startswith("world_protocol") and one.suffix != ".pth":
            (packages / one.name).symlink_to(one)
    with DaskCluster(tmp_path) as dask:
        error = refused(Workers(executor=dask.executor))
        assert error.code == "CLUSTER_UNREACHABLE"
        assert "has no workers" in error.message
        dask.start_workers(1, packages, (sys.executable, "-S"))
        error = refused(Workers(executor=dask.executor))
        assert error.code == "CLUSTER_UNFIT"
        assert "it has no module worldprotocol" in error.message
        assert error.details["worker"].startswith("tcp://127.0.0.1:")
        dask.processes[-1].kill()
        until(lambda: not dask.client.scheduler_info(n_workers=-1)["workers"])
        for name in ("world", "projections", "authority", "host", "worldprotocol"):
            (packages / name).symlink_to(ROOT / name)
        (packages / "world_protocol-0.0.9.dist-info").mkdir()
        metadata = "Metadata-Version: 2.1\nName: world-protocol\nVersion: 0.0.9\n"
        (packages / "world_protocol-0.0.9.dist-info" / "METADATA").write_text(metadata)
        dask.start_workers(1, packages, (sys.executable, "-S"))
        error = refused(Workers(executor=dask.executor))
        assert error.code == "CLUSTER_UNFIT"
        assert "another release: 0.0.9 in place of" in error.message


OTHER_CODE = (
    ("    have = ctx", "    str(3)\n    have = ctx", "action:sell is another"),  # with equal results
    ("have - input.count)", "have - 1)", "action:sell is another"),
    ("stock: dict[str, int] = {", "more: int = 0\n    stock: dict[str, int] = {", "schema is "),
)


@pytest.mark.requirement("CARD-replay", "CARD-policy")
def test_a_worker_with_other_code_of_the_realm_performs_nothing(tmp_path: Path) -> None:
    realm = founded(tmp_path, Inside)
    realm("submit", "--intents", "-", given=sale("bot", count=2) * 6)
    text = COUNTER.read_text()
    (tmp_path / "wares.py").write_text(text)
    config = tmp_path / "world.toml"
    config.write_text(config.read_text().replace(f"{COUNTER}:", "wares:"))
    (tmp_path / "dask").mkdir()
    wanted: tuple[tuple[str, ...], ...] = (("recheck",), ("policy", "backtest", "--with", "wares:house"))
    for words in wanted:
        realm(*words)
    with DaskCluster(tmp_path / "dask") as dask:
        for number, (was, is_there, name) in enumerate(OTHER_CODE):
            there = tmp_path / f"there{number}"
            there.mkdir()
            assert was in text
            (there / "wares.py").write_text(text.replace(was, is_there, 1))
            dask.start_workers(1, Path(f"{ROOT}{os.pathsep}{there}"))
            [worker] = dask.client.scheduler_info(n_workers=-1)["workers"]
            for words in wanted:
                error = realm(*words, "--executor", dask.executor, "--json", code=1).json["error"]
                assert (error["code"], error["details"]["worker"]) == ("CLUSTER_UNFIT", worker)
                assert error["message"].startswith(f"On the worker {worker}: ")
                assert name in error["message"]
                assert {one["name"] for one in error["details"]["differences"]} >= {name.partition(" ")[0]}
            dask.processes[-1].kill()
            until(lambda: not dask.client.scheduler_info(n_workers=-1)["workers"])
        dask.start_workers(1)
        for words in wanted:
            realm(*words, "--executor", dask.executor)


def test_a_log_that_a_worker_cannot_open_says_what_to_do_and_shows_no_password(dask: DaskCluster) -> None:
    for address, code, advice in (
        ("/nowhere/world.db", "LOG_NOT_FOUND", "otherwise keep the log in PostgreSQL."),
        ("postgresql://ann:open-sesame@127.0.0.1:1/realm", "LOG_UNAVAILABLE", ""),
    ):
        setup = RecheckSetup(address, "tests.golden.garden:garden", folder=ROOT)
        assert "open-sesame" not in repr(setup)
        crew = ClusterCrew(dask.executor.replace("dask", "tcp"), None, [address])
        works: WorkList[Any] = WorkList([Work(setup.stretches, [(0, 5)])], crew)
        done: list[TaskDone[Any]] = list(works.results())
        assert len(done) == 1
        error = done[0].error
        assert isinstance(error, WorldProtocolError)
        assert error.code == code
        assert re.match(r"On the worker tcp://127\.0\.0\.1:\d+: ", error.message)
        assert error.message.endswith(advice)
        assert "open-sesame" not in error.message
    assert "open-sesame" not in dask.output


def test_a_scheduler_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_cluster, "CONNECT_S", 0.5)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, and not listening
        error = refused(Workers(executor=f"dask://127.0.0.1:{bound.getsockname()[1]}"))
    assert error.code == "CLUSTER_UNREACHABLE"
    assert "does not answer" in error.message
