"""The depot, where the bank is outside: workers claim its payments and report them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from host.effects import EffectHandler
from worldprotocol.simulation.depot import COUNTERS, bank_pay, bank_wire
from worldprotocol.simulation.depot import scenario as depot
from worldprotocol.simulation.scenario import DrawnIntent

__all__ = ["scenario"]


def _outside(handler: EffectHandler) -> EffectHandler:
    return replace(handler, terms=replace(handler.terms, external=True))


def draw(chance: Random) -> DrawnIntent:
    """Draw a payment most of the time."""
    if chance.random() < 0.2:
        return depot.draw(chance)
    to, amount = chance.choice(COUNTERS), chance.choice((1, 2, 3, 4, 7))
    if chance.random() < 0.5:
        given = {"to": to, "amount": amount, "times": chance.randint(1, 2)}
        return DrawnIntent("pay", given, (f"data.paid.{to}",))
    return DrawnIntent("wire", {"to": to, "amount": amount}, (f"data.paid.{to}", "data.receipts"))


scenario = replace(depot, draw=draw, editions=(), effects=(_outside(bank_pay), _outside(bank_wire)))
"""The scenario of external effects."""
