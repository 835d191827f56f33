"""The depot, whose payments are calls of tools: agents make them, in sessions that end at any moment."""

from __future__ import annotations

from dataclasses import replace

from host.effects import EffectHandler
from worldprotocol.simulation.depot import bank_pay, bank_wire
from worldprotocol.simulation.external.bank import scenario as bank

__all__ = ["scenario"]


def _call(handler: EffectHandler) -> EffectHandler:
    return replace(handler, terms=replace(handler.terms, external=True, by_actor=True, time_limit_ms=20_000))


scenario = replace(bank, effects=(_call(bank_pay), _call(bank_wire)))
"""The scenario of calls."""
