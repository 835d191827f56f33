"""Typed effects pass mypy --strict and pyright in strict mode, and a mistake in one does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parent.parent
RIGHT = """
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
WRONG = {
    "    charge(amont=1)": "amont",
    "    charge(amount='x')": "int",
    "    one.nummer": "nummer",
    "    two.nummer": "nummer",
    "    handler(charge)(lambda given, call: 'x')": "Receipt",
}
"""Lines with one mistake each, in the last function, and the word that a message of a type checker has to have."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("typed_effects")
    (place / "right.py").write_text(RIGHT + "    return []\n", encoding="utf-8")
    (place / "wrong.py").write_text(RIGHT + "".join(f"{line}\n" for line in WRONG), encoding="utf-8")
    settings = {"pythonVersion": "3.11", "extraPaths": [str(ROOT)], "include": ["."], "typeCheckingMode": "strict"}
    settings |= {"reportUnusedVariable": "none", "reportUnusedExpression": "none", "reportUnusedParameter": "none"}
    (place / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    return place


def mistakes(found: dict[str, list[tuple[int, str]]]) -> None:
    first = len(RIGHT.splitlines()) + 1
    assert found.get("right.py", []) == []
    for at, (line, word) in enumerate(WRONG.items(), first):
        assert any(number == at and word in message for number, message in found["wrong.py"]), (line, found)


@pytest.mark.slow
def test_typed_effects_pass_mypy_strict(folder: Path) -> None:
    options = ["--strict", "--no-error-summary", "--no-pretty", "--config-file", ""]
    out, errors, _ = api.run([*options, "--cache-dir", str(folder / "mypy"), *map(str, folder.glob("*.py"))])
    assert not errors, errors
    found: dict[str, list[tuple[int, str]]] = {}
    for line in out.splitlines():
        if ": error: " in line:
            where, _, message = line.partition(": error: ")
            path, _, number = where.partition(".py:")
            found.setdefault(f"{Path(path).name}.py", []).append((int(number), message))
    mistakes(found)


@pytest.mark.slow
def test_typed_effects_pass_pyright_strict(folder: Path) -> None:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found: dict[str, list[tuple[int, str]]] = {}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            place = (one["range"]["start"]["line"] + 1, one["message"])
            found.setdefault(Path(one["file"]).name, []).append(place)
    mistakes(found)
