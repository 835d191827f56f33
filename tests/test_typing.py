"""What users write is typed: README and examples pass mypy --strict and pyright, and a misspelt name does not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

from tests.documents import blocks

ROOT = Path(__file__).parent.parent
FRAMEWORKS = "frameworks"
"""Folder of examples with frameworks whose own types are partly unknown to pyright; mypy checks them."""

EXAMPLES = tuple(sorted((ROOT / "examples").rglob("*.py")))
DEVELOPER = ROOT / "docs" / "developer.md"
CHECKED = "type-checked"
"""Mark of the blocks of a page that are one program, which both checkers read in their strict modes."""

RIGHT = """
from pydantic import BaseModel

from worldprotocol import ActionContext, ActionSteps, AsyncRealm, Domain, Patch, Realm, effect, set_


class Shop(BaseModel):
    stock: int = 0
    names: dict[str, str] = {}


class Sale(BaseModel):
    count: int


shop = Domain("urn:x:shop", version="1.0.0", state=Shop)
plain = Domain("urn:x:plain", version="1.0.0", state={"fields": {}})


@shop.action("sell", version="1")
def sell(ctx: ActionContext[Shop], sale: Sale) -> list[Patch]:
    left: int = ctx.state.stock - sale.count
    return [set_("stock", left)]


@shop.action("charge", version="1")
def charge(ctx: ActionContext) -> ActionSteps:
    receipt = yield effect("bank.charge", amount=ctx.data["stock"])
    return [set_("stock", receipt["left"])]


@plain.action("go", version="1")
def go(ctx: ActionContext) -> None: ...


def wait(realm: Realm) -> str:
    sold = realm.act("ann", "sell", {}, wait=True)
    return realm.wait(sold, 5, until="decided").status


async def wait_async(realm: AsyncRealm) -> str:
    sold = await realm.act("ann", "sell", {}, wait=2.5)
    async with realm.leases.acquire(agent="ann", resource="FILE:/a") as held, realm.subscribe() as events:
        async for position, event in events:
            print(position + held.token, event.TOPIC)
    return (await realm.wait(sold.proposal_id, timeout=5)).status


async def open_async() -> None:
    async with AsyncRealm.open("x.db", domain=shop, on_change="hold") as realm:
        print([world.height async for world in realm.worlds(3)], (await realm.actions.catalog("ann")).actions)
"""
WRONG = {
    "Domain('urn:x:other', version='1.0.0', state=Shop, descripton='a')": "descripton",
    "shop.action('other', version='1', availible=None)": "availible",
    "Realm.open('x.db', domain=shop, limit=None)": "limit",
    "Realm.open('x.db', domain=shop).act('ann', 'sell', {}, nota='x')": "nota",
    "sell(shop, Sale(count=1))": "Domain",
    "stock: str = shop.state_of(shop.schema.portable).stock": "str",
    "shop.state_of(shop.schema.portable).stok": "stok",
    "Realm.open('x.db', domain=shop).act('ann', 'sell', {}, wait='long')": "wait",
    "Realm.open('x.db', domain=shop).wait('id', until='over')": "until",
    "AsyncRealm.open('x.db', domain=shop, limit=None)": "limit",
    "AsyncRealm(Realm.open('x.db', domain=shop)).act('ann', 'sell', {}, nota='x')": "nota",
    "AsyncRealm(Realm.open('x.db', domain=shop)).wait('id', timout=5)": "timout",
    "AsyncRealm(Realm.open('x.db', domain=shop)).leases.acquire(agent='ann', resorce='x')": "resorce",
}
"""Lines with one mistake each, and the word that its message has to have."""


def checked_by_mypy(folder: Path, *paths: Path) -> list[str]:
    options = ["--strict", "--explicit-package-bases", "--no-error-summary", "--no-pretty", "--config-file", ""]
    out, errors, _ = api.run([*options, "--cache-dir", str(folder / "mypy"), *map(str, paths)])
    assert not errors, errors
    return [line for line in out.splitlines() if ": error: " in line]


def checked_by_pyright(folder: Path, *paths: Path) -> list[str]:
    """Return the errors that the strict mode finds, each as ``file:line: message``."""
    include = [os.path.relpath(one, folder) for one in paths]  # absolute ones are ignored
    settings = {"pythonVersion": "3.11", "typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": include}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(paths), done.stdout
    return [f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}" for one in
            found["generalDiagnostics"] if one["severity"] == "error"]  # fmt: skip


def readme() -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL))


def page() -> str:
    return "\n".join(block.text for block in blocks(DEVELOPER) if CHECKED in block.mark)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program of the README, a right one and wrong ones."""
    place = tmp_path_factory.mktemp("typed")
    (place / "readme.py").write_text(readme(), encoding="utf-8")
    (place / "page.py").write_text(page(), encoding="utf-8")
    (place / "right.py").write_text(RIGHT, encoding="utf-8")
    (place / "wrong.py").write_text(RIGHT + "".join(f"{line}\n" for line in WRONG), encoding="utf-8")
    return place


@pytest.mark.slow
def test_the_program_of_the_readme_passes_mypy_strict(folder: Path) -> None:
    assert checked_by_mypy(folder, folder / "readme.py", folder / "right.py", folder / "page.py") == []


@pytest.mark.slow
def test_every_example_passes_mypy_strict(folder: Path) -> None:
    assert len(EXAMPLES) >= 19
    assert checked_by_mypy(folder, *EXAMPLES) == []


@pytest.mark.slow
def test_each_misspelt_name_is_an_error_of_mypy(folder: Path) -> None:
    first = len(RIGHT.splitlines()) + 1
    found = checked_by_mypy(folder, folder / "wrong.py")
    for at, (line, word) in enumerate(WRONG.items(), first):
        assert any(f"wrong.py:{at}: error" in one and word in one for one in found), (line, found)
    assert all(int(one.split(":")[1]) >= first for one in found), found


@pytest.mark.slow
def test_the_readme_the_examples_and_the_page_pass_the_strict_mode_of_pyright(folder: Path) -> None:
    programs = [folder / "readme.py", folder / "page.py", folder / "right.py"]
    assert checked_by_pyright(folder, *programs, *(one for one in EXAMPLES if one.parent.name != FRAMEWORKS)) == []


@pytest.mark.slow
def test_each_misspelt_name_is_an_error_of_pyright(folder: Path) -> None:
    found = checked_by_pyright(folder, folder / "wrong.py")
    lines = {int(one.rpartition(".py:")[2].partition(":")[0]) for one in found}
    first = len(RIGHT.splitlines()) + 1
    assert set(range(first, first + len(WRONG))) <= lines
    assert min(lines) >= first
