"""Storage back ends are entry points, the product's own and those of other distributions alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from world.audit.verify import verify
from world.errors import RefusedError
from world.log import list_logs, open_log, parse_address
from world.log.backends import registry
from world.log.backends.registry import GROUP
from worldprotocol import ActionContext, Domain, Realm, set_

ROOT = Path(__file__).resolve().parents[2]

ACCOUNTED = '''
"""Logs in SQLite files, with an account of their commits in a file beside each."""

from world.log.backends.builtin import SqliteBackend
from world.log.backends.sqlite import SqliteStore
from world.log.url import LogAddress


class AccountedStore(SqliteStore):
    """A SQLite store that writes the number of the events of every commit to a file."""

    def describe(self):
        return f"the accounted file {self._path}"

    def commit(self, batch):
        super().commit(batch)
        if batch is not None:
            with open(f"{self._path}.account", "a") as account:
                account.write(f"{len(batch.events)}\\n")


class AccountedBackend(SqliteBackend):
    """Logs at accounted:///FILE."""

    def parse(self, url, name):
        if not url.database or url.host:
            raise ValueError("write accounted:///FILE")
        return LogAddress("accounted", name, path=url.database, url=url)

    def open(self, address, options):
        return AccountedStore(
            address.path,
            read_only=options.read_only,
            create=options.create,
            durability=options.durability,
            busy_timeout_ms=options.busy_timeout_ms,
        )


BACKEND = AccountedBackend()
'''

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what installs a distribution into a folder of this test's own."""
    monkeypatch.setattr(registry, "_loaded", {})

    def installed(name: str, points: str, code: str = ACCOUNTED) -> Path:
        site = tmp_path / f"site-{name}"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")
        (site / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return site

    return installed


class Stock(BaseModel):
    stock: int = 0


class Addition(BaseModel):
    count: int


def stock() -> Domain:
    """Return a domain with one action."""
    domain = Domain("urn:example:stock", version="1.0.0", state=Stock)

    @domain.action("add", version="1")
    def add(ctx: ActionContext, input: Addition) -> list[Any]:  # noqa: A002
        return [set_("stock", ctx.data["stock"] + input.count)]

    return domain


def test_the_products_own_back_ends_are_entry_points() -> None:
    points = {point.name: point.value for point in distribution("world-protocol").entry_points.select(group=GROUP)}
    assert points == {
        "parquet": "world.log.backends.builtin:PARQUET",
        "sqlite": "world.log.backends.builtin:SQLITE",
        "postgres": "world.log.backends.builtin:POSTGRESQL",
        "postgresql": "world.log.backends.builtin:POSTGRESQL",
    }


@pytest.mark.requirement("CARD-log")
@pytest.mark.slow
def test_a_realm_is_founded_in_the_storage_of_another_distribution(install: Install, tmp_path: Path) -> None:
    address = f"accounted:///{tmp_path / 'world.db'}#audit"
    with pytest.raises(RefusedError, match="no storage back end is registered for accounted") as caught:
        parse_address(address)
    assert caught.value.code == "INVALID_ADDRESS"
    site = install("accounted", "accounted = accounted:BACKEND")
    with Realm.create(address, domain=stock()) as realm:
        realm.register("ada", "human", binding={"kind": "auto_approve"})
        assert realm.act("ada", "add", {"count": 2}).status == "completed"
        assert str(realm.log.address) == address
        in_full = realm.log.head().size
    commits = [int(line) for line in Path(f"{tmp_path / 'world.db'}.account").read_text().split()]
    assert sum(commits) == in_full
    assert len(commits) > 2
    program = (
        "import sys\nfrom tests.log.test_storage_backends import stock\nfrom worldprotocol import Realm\n"
        "with Realm.open(sys.argv[1], domain=stock()) as realm:\n"
        "    print(realm.act('ada', 'add', {'count': 3}).status, realm.data()['stock'])\n"
    )
    paths = {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", program, address]
    said = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, check=True).stdout
    assert said == "completed 5\n"
    with open_log(address, read_only=True) as log:
        assert verify(log).findings == ()
        assert log.head().size == sum(int(line) for line in Path(f"{log.address.path}.account").read_text().split())
    assert list_logs(address) == ["audit"]


def test_a_scheme_of_the_product_is_not_taken_by_another_distribution(install: Install, tmp_path: Path) -> None:
    install("taking", "sqlite = taking:BACKEND", "raise SystemExit('it was run')")
    with open_log(f"sqlite:///{tmp_path / 'log.db'}", create=True) as log:
        assert log.address.scheme == "sqlite"


def test_a_scheme_that_two_distributions_offer_is_refused(install: Install) -> None:
    install("accounted", "accounted = accounted:BACKEND")
    install("again", "accounted = again:BACKEND")
    with pytest.raises(RefusedError, match="accounted:BACKEND, again:BACKEND") as caught:
        parse_address("accounted:///world.db")
    assert caught.value.code == "NOT_LOADED"


@pytest.mark.parametrize("code", ["raise ValueError('out of order')", "BACK = 1"])
def test_a_back_end_that_cannot_be_loaded_is_refused(install: Install, code: str) -> None:
    install("broken", "broken = broken:BACKEND", code)
    with pytest.raises(RefusedError, match=r"broken:BACKEND.*(out of order|BACKEND)") as caught:
        parse_address("broken:///world.db")
    assert caught.value.code == "NOT_LOADED"


def test_what_a_back_end_says_of_an_address_is_the_reason_of_the_refusal(install: Install) -> None:
    install("accounted", "accounted = accounted:BACKEND")
    with pytest.raises(RefusedError, match="no address of a log: write accounted:///FILE") as caught:
        parse_address("accounted://ann:secret@host/x")
    assert caught.value.code == "INVALID_ADDRESS"
    assert "secret" not in str(caught.value)


def test_an_unknown_scheme_names_those_that_are_registered() -> None:
    with pytest.raises(RefusedError, match="for mysql; registered are parquet, postgres, postgresql, sqlite"):
        parse_address("mysql://host/x")
