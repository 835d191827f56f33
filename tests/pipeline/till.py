"""A till with two policy files, for tests of policies that are replaced, retired, or only shadow another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, Patch, set_
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck

HOUSE = """\
name = "house"

[[rules]]
id = "small"
when = "intent.input.amount <= 20"
verdict = "approve"
reason = "small"

[[rules]]
id = "covered"
when = "intent.input.amount > base.data.balance"
verdict = "reject"

[[rules]]
id = "large"
when = "intent.input.amount > 20"
verdict = "escalate"
to = ["ann"]
"""
STRICT = HOUSE.replace('"house"', '"strict"').replace("<= 20", "<= 10").replace("> 20", "> 10 && actor.meta.level < 3")
BOUND: Mapping[str, Any] = {"kind": "policy_rules", "policy": "house"}


class Till(BaseModel):
    """The state."""

    balance: int = 100


class Payment(BaseModel):
    """The input."""

    amount: int


till = Domain("urn:test:till", version="1.0.0", state=Till)


@till.action("pay", version="1")
def pay(ctx: ActionContext, input: Payment) -> list[Patch]:  # noqa: A002
    """Take money out."""
    return [set_("balance", ctx.data["balance"] - input.amount)]


def parts(folder: Path, *files: str) -> dict[str, Any]:
    """Return what composes the realm."""
    return {"domain": till, "policies": list(files or ("house.toml",)), "folder": folder}


def opened(address: str, folder: Path, *files: str, strict: str = STRICT) -> Realm:
    """Found a realm with ann, who is asked, and bot, bound by house; time and ids are the test's own."""
    (folder / "house.toml").write_text(HOUSE, encoding="utf-8")
    (folder / "strict.toml").write_text(strict, encoding="utf-8")
    given: dict[str, Any] = {"clock": ManualClock(1_700_000_000_000, 1_000), "ids": SequentialIds()}
    world = Realm.create(address, **parts(folder, *files), **given)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding=BOUND, meta={"level": 1})
    return world


def sound(address: str, folder: Path, *files: str) -> Any:
    """Verify the log, fold it anew, and perform all its steps again; return what came of the last."""
    with open_to_recheck(address, **parts(folder, *files)) as looked:
        told = verify(looked.log)
        assert told.ok, told.to_wire()
        again, known = looked.archive.fold_realm(), looked.realm()
        assert again.proposals == known.proposals
        assert again.policies == known.policies
        return recheck(looked, every=True)
