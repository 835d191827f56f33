"""Typed effects: a declaration with input and output, used by actions and by handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from world.core import ActionContext, ActionSteps, Domain, EffectFailedError, EffectType, effect, set_
from worldprotocol import EffectFailure, EffectResult, Realm, external, handler


class Shop(BaseModel):
    paid: int = 0
    said: str = ""


class Charge(BaseModel):
    amount: int


class Receipt(BaseModel):
    number: int


@dataclass
class Note:
    text: str


charge = EffectType("bank.charge", input=Charge, output=Receipt)
tell = EffectType("mail.tell", input=Note, output=str)
shop = Domain("urn:test:typed", version="1.0.0", state=Shop)


@shop.action("pay", version="1")
def pay(ctx: ActionContext[Shop]) -> ActionSteps:
    receipt = yield from charge(amount=7)
    again: Receipt = yield charge(amount=receipt.number)
    said = yield from tell(text="hi")
    return [set_("paid", again.number), set_("said", said)]


@shop.action("once", version="1")
def once(ctx: ActionContext[Shop]) -> ActionSteps[Receipt]:
    receipt = yield charge(amount=2)
    return [set_("paid", receipt.number)]


@shop.action("careful", version="1")
def careful(ctx: ActionContext[Shop]) -> ActionSteps:
    try:
        yield from charge(amount=1)
    except EffectFailedError as failed:
        return [set_("said", failed.code)]
    return None


@handler(charge, idempotent=True)
def on_charge(given: Charge, call: Any) -> Receipt | EffectFailure:
    return Receipt(number=given.amount + 1)


@handler(tell)
async def on_tell(given: Note, call: Any) -> str:
    return given.text.upper()


def opened(*effects: Any) -> Realm:
    realm = Realm.create("sqlite:///:memory:", domain=shop, effects=effects)
    realm.register("ann", "human", binding={"kind": "auto_approve"})
    return realm


def test_results_reach_the_action_as_instances_of_their_types() -> None:
    with opened(on_charge, on_tell) as realm:
        assert realm.act("ann", "pay").status == "completed"
        assert realm.data() == {"paid": 9, "said": "HI"}
        assert realm.act("ann", "once").status == "completed"
        assert realm.data()["paid"] == 3


def test_a_declared_effect_is_requested_like_an_untyped_one() -> None:
    assert charge(amount=3) == effect("bank.charge", amount=3)
    assert tell(text="a") == effect("mail.tell", text="a")
    with pytest.raises(ValidationError):
        charge(amount="much")


@pytest.mark.parametrize("given", ["x", {"number": "seven"}, EffectResult({"other": 1})])
def test_a_result_that_does_not_fit_the_output_is_an_error_of_the_effect(given: Any) -> None:
    @handler(charge)
    def wrong(_given: Charge, _call: Any) -> Any:
        return given

    with opened(wrong) as realm:
        assert realm.act("ann", "careful").status == "completed"
        assert realm.data()["said"] == "EFFECT_INVALID_RESULT"


def test_a_result_of_a_worker_without_the_declaration_is_read_by_the_action() -> None:
    @handler("bank.charge")
    def plain(params: Any, _call: Any) -> Any:
        return {"number": str(params["amount"] * 2)} if params["amount"] == 1 else {"number": params["amount"] * 2}

    with opened(plain) as realm:
        assert realm.act("ann", "once").status == "completed"
        assert realm.data()["paid"] == 4


def test_a_failure_of_a_typed_handler_is_the_failure_of_the_effect() -> None:
    @handler(charge)
    def refuse(_given: Charge, _call: Any) -> Receipt | EffectFailure:
        return EffectFailure("NO_MONEY", "the account is empty")

    with opened(refuse) as realm:
        assert realm.act("ann", "careful").status == "completed"
        assert realm.data()["said"] == "NO_MONEY"


def test_a_declaration_makes_an_external_effect_too() -> None:
    declared = external(charge, idempotent=True)
    assert (declared.type, declared.terms.external, declared.terms.idempotent) == ("bank.charge", True, True)
    assert declared.input is not None
