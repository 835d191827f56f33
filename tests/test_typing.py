"""What users write is typed: README, examples and effects pass mypy --strict and pyright, and mistakes do not.

Each checker reads all programs in one run, because most of its time goes into reading the product.
"""

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

EFFECTS = """
# pyright: reportUnusedVariable=false, reportUnusedExpression=false
from pydantic import BaseModel

from worldprotocol import ActionContext, ActionSteps, Domain, EffectFailure, EffectType, effect, external, handler, set_


class Shop(BaseModel):
    paid: int = 0


class Charge(BaseModel):
    amount: int


class Receipt(BaseModel):
    number: int


shop = Domain("urn:x:typed", version="1.0.0", state=Shop)
charge = EffectType("bank.charge", input=Charge, output=Receipt)
tell = EffectType("mail.tell", input=Charge, output=str)


@shop.action("pay", version="1")
def pay(ctx: ActionContext[Shop]) -> ActionSteps:
    receipt = yield from charge(amount=ctx.state.paid)
    number: int = receipt.number
    said = yield from tell(amount=1)
    loud: str = said.upper()
    yield effect("x.y", loud=loud)
    return [set_("paid", number)]


@shop.action("once", version="1")
def once(ctx: ActionContext[Shop]) -> ActionSteps[Receipt]:
    receipt = yield charge(amount=1)
    return [set_("paid", receipt.number)]


@handler(charge, idempotent=True)
def on_charge(given: Charge, call: object) -> Receipt | EffectFailure:
    return Receipt(number=given.amount)


offered = external(charge, idempotent=True)


def wrong(receipt: Receipt, ctx: ActionContext[Shop]) -> ActionSteps[Receipt]:
    one = yield charge(amount=1)
    two = yield from charge(amount=2)
"""
WRONG_EFFECTS = {
    "    charge(amont=1)": "amont",
    "    charge(amount='x')": "int",
    "    one.nummer": "nummer",
    "    two.nummer": "nummer",
    "    handler(charge)(lambda given, call: 'x')": "Receipt",
}
"""The same for effects, in the last function."""

Errors = dict[str, list[tuple[int, str]]]
"""The errors of a checker, by the name of the program: line and message."""


def readme() -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL))


def page() -> str:
    return "\n".join(block.text for block in blocks(DEVELOPER) if CHECKED in block.mark)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Programs by name: right ones, and wrong ones with one mistake in each of their last lines."""
    place = tmp_path_factory.mktemp("typed")
    texts = {
        "readme": readme(),
        "page": page(),
        "right": RIGHT,
        "effects": f"{EFFECTS}    return []\n",
        "wrong": RIGHT + "".join(f"{line}\n" for line in WRONG),
        "wrong_effects": EFFECTS + "".join(f"{line}\n" for line in (*WRONG_EFFECTS, "    return []")),
    }
    for name, text in texts.items():
        (place / f"{name}.py").write_text(text, encoding="utf-8")
    return {name: place / f"{name}.py" for name in texts}


@pytest.fixture(scope="module")
def found_by_mypy(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """What the strict mode of mypy finds in the programs and the examples."""
    options = ["--strict", "--explicit-package-bases", "--no-error-summary", "--no-pretty", "--config-file", ""]
    cache = tmp_path_factory.mktemp("mypy")
    out, errors, _ = api.run([*options, "--cache-dir", str(cache), *map(str, (*programs.values(), *EXAMPLES))])
    assert not errors, errors
    found: Errors = {}
    for line in out.splitlines():
        where, is_error, message = line.partition(": error: ")
        if is_error:
            path, _, number = where.rpartition(":")
            found.setdefault(Path(path).stem, []).append((int(number), message))
    return found


@pytest.fixture(scope="module")
def found_by_pyright(programs: dict[str, Path]) -> Errors:
    """What the strict mode of pyright finds in the programs, and in examples without frameworks."""
    folder = programs["readme"].parent
    paths = [*programs.values(), *(one for one in EXAMPLES if one.parent.name != FRAMEWORKS)]
    include = [os.path.relpath(one, folder) for one in paths]  # absolute ones are ignored
    settings = {"pythonVersion": "3.11", "typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": include}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == len(paths), done.stdout
    found: Errors = {}
    for one in told["generalDiagnostics"]:
        if one["severity"] == "error":
            place = (one["range"]["start"]["line"] + 1, one["message"])
            found.setdefault(Path(one["file"]).stem, []).append(place)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_right_programs_pass_and_each_mistake_is_an_error(checker: str, request: pytest.FixtureRequest) -> None:
    assert len(EXAMPLES) >= 19
    found: Errors = request.getfixturevalue(f"found_by_{checker}")
    assert found.keys() == {"wrong", "wrong_effects"}, found
    for name, right, wrong in (("wrong", RIGHT, WRONG), ("wrong_effects", EFFECTS, WRONG_EFFECTS)):
        first = len(right.splitlines()) + 1
        assert min(number for number, _ in found[name]) >= first, found[name]
        for at, (line, word) in enumerate(wrong.items(), first):
            messages = [message for number, message in found[name] if number == at]
            says_little = name == "wrong" and checker == "pyright"  # which says only that no overload fits
            assert any(says_little or word in message for message in messages), (line, messages)
