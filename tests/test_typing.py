"""What users write is typed: README and examples pass mypy --strict and pyright, and a misspelt name does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parent.parent
EXAMPLES = ("examples/repository", "examples/tested", "examples/governed")
RIGHT = """
from pydantic import BaseModel

from worldprotocol import ActionContext, ActionSteps, Domain, Patch, Realm, effect, set_


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
"""
WRONG = {
    "Domain('urn:x:other', version='1.0.0', state=Shop, descripton='a')": "descripton",
    "shop.action('other', version='1', availible=None)": "availible",
    "Realm.open('x.db', domain=shop, limit=None)": "limit",
    "Realm.open('x.db', domain=shop).act('ann', 'sell', {}, nota='x')": "nota",
    "sell(shop, Sale(count=1))": "Domain",
    "stock: str = shop.state_of(shop.schema.portable).stock": "str",
    "shop.state_of(shop.schema.portable).stok": "stok",
}
"""Lines with one mistake each, and the word that its message has to have."""


def checked_by_mypy(path: Path) -> list[str]:
    cache = path.parent / "mypy"
    out, errors, _ = api.run(
        ["--strict", "--no-error-summary", "--no-pretty", "--config-file", "", "--cache-dir", str(cache), str(path)]
    )
    assert not errors, errors
    return [line for line in out.splitlines() if ": error: " in line]


def checked_by_pyright(folder: Path, *paths: str) -> list[str]:
    settings = {"pythonVersion": "3.11", "extraPaths": [str(ROOT)], "include": [str(ROOT / one) for one in paths]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] >= 1, done.stdout
    return [f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}" for one in
            found["generalDiagnostics"] if one["severity"] == "error"]  # fmt: skip


def readme() -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program of the README, a right one and wrong ones."""
    place = tmp_path_factory.mktemp("typed")
    (place / "readme.py").write_text(readme(), encoding="utf-8")
    (place / "right.py").write_text(RIGHT, encoding="utf-8")
    (place / "wrong.py").write_text(RIGHT + "".join(f"{line}\n" for line in WRONG), encoding="utf-8")
    return place


@pytest.mark.slow
def test_the_program_of_the_readme_passes_mypy_strict(folder: Path) -> None:
    assert checked_by_mypy(folder / "readme.py") == []
    assert checked_by_mypy(folder / "right.py") == []


@pytest.mark.slow
def test_each_misspelt_name_is_an_error_of_mypy(folder: Path) -> None:
    first = len(RIGHT.splitlines()) + 1
    found = checked_by_mypy(folder / "wrong.py")
    for at, (line, word) in enumerate(WRONG.items(), first):
        assert any(f"wrong.py:{at}: error" in one and word in one for one in found), (line, found)
    assert all(int(one.split(":")[1]) >= first for one in found), found


@pytest.mark.slow
def test_the_readme_and_the_examples_pass_pyright(folder: Path) -> None:
    wrong = (folder / "wrong.py").rename(folder / "wrong.txt")
    try:
        assert checked_by_pyright(folder, str(folder), *EXAMPLES) == []
    finally:
        wrong.rename(folder / "wrong.py")
    found = checked_by_pyright(folder, str(folder / "wrong.py"))
    lines = {int(one.rpartition(".py:")[2].partition(":")[0]) for one in found}
    first = len(RIGHT.splitlines()) + 1
    assert set(range(first, first + len(WRONG))) <= lines
    assert min(lines) >= first
