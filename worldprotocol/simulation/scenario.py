"""Scenario of a simulation: domain, policies, effects, actors and expected results.

A custom scenario is an object at module level, given to the command by ``--scenario file.py:attribute``::

    scenario = Scenario(domain=shop, actors=(Player("ann", "human", {"kind": "auto_approve"}),), draw=drawn_intents)

Everything a scenario decides must follow from the ``random.Random`` that it is handed, or from its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

from authority import Policy
from host import EffectHandler
from world.code.references import load_reference
from world.core import Domain
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.model.actor import ActorKind

__all__ = ["DEPOT", "DrawnIntent", "Edition", "Expectation", "Player", "Scenario", "SimulatedProgram", "load_scenario"]

DEPOT: Final = "worldprotocol.simulation.depot:scenario"
"""The scenario that is simulated where no other is named."""

Expectation = Literal["approve", "reject", "wait"] | None
"""What a first ruling must be; None where nothing is known."""


@dataclass(frozen=True, slots=True)
class Player:
    """An actor of a scenario.

    Args:
        actor_id: its id.
        kind: human, agent or system.
        binding: its authority binding.
    """

    actor_id: str
    kind: ActorKind
    binding: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DrawnIntent:
    """What an actor wants.

    Args:
        type: the action.
        input: its input, JSON.
        scope: the patterns that are proposed; None proposes none.
    """

    type: str
    input: Any = None
    scope: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Edition:
    """Domain that replaces the previous one during a simulation.

    Args:
        domain: with the same actions as the first one.
        fits: says independently of its schema whether data obeys it; without it only what is refused comes to light.
        migrates: says independently of the domain's migrations what they make of data, by the version they start from.
    """

    domain: Domain
    fits: Callable[[Any], bool] = lambda _data: True
    migrates: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulatedProgram:
    """A program that differs from the one that founded the realm.

    Args:
        policies: with the names of the scenario's.
        domain: with the schema of the scenario's domain and other code, which is never adopted; None is no other one.
    """

    policies: tuple[Policy, ...]
    domain: Domain | None = None


def _limits() -> Limits:
    """Return limits with short times, so that much happens in little virtual time."""
    klis = KlisSettings(default_ttl_ms=20_000, max_hold_ms=120_000, max_proposal_retries=6)
    return Limits(checkpoint_every=8, klis=klis)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated.

    Args:
        domain: whose actions run.
        actors: the acting actors, at least one; those of kind human may answer.
        draw: draws an intent.
        editions: further domains, which steps adopt, and the first one after them again.
        policies: those in force from the founding on; each may also shadow.
        spare: names of ``policies`` that are adopted only by a step.
        effects: handlers; in a simulation they run in the caller's thread and must not wait for anything.
        projections: called with source events, whose payload is a drawn intent ``{"type", "input"}``.
        bindings: what actors are bound to anew, now and then.
        resources: what direct leases are asked for.
        scopes: patterns to which people narrow what they approve.
        bad_weather: how likely something goes wrong while an effect is made, from 0 to 1.
        expects: says independently of the policies what the first ruling on ``(binding, intent body)`` must be.
        adds: says independently of the actions what a completed ``(type, input)`` adds to numbers in the data, by path.
        programs: that differ from the founding one; steps start workers with them.
        takes: says independently of the schema whether ``(type, input)`` can be submitted.
        ends: says independently of the schema with which error code ``(type, input)`` ends on data, where its state is
            refused; empty where it is not, None where nothing is known.
        data: initial data that differs from the domain's defaults.
        limits: of the pipeline.

    Raises:
        RefusedError: ``INVALID_SIMULATION`` without actors, or with spare policies that are none of its own.
    """

    domain: Domain
    actors: tuple[Player, ...]
    draw: Callable[[Random], DrawnIntent]
    editions: tuple[Edition, ...] = ()
    policies: tuple[Policy, ...] = ()
    spare: tuple[str, ...] = ()
    effects: tuple[EffectHandler, ...] = ()
    projections: tuple[Any, ...] = ()
    bindings: tuple[Mapping[str, Any], ...] = ()
    resources: tuple[str, ...] = ("FILE:/a/*", "FILE:/a/x", "FILE:/a/y", "FILE:/b", "SYMBOL:S", "CONFIG_KEY:k")
    scopes: tuple[str, ...] = ("data.*",)
    bad_weather: float = 0.4
    expects: Callable[[Mapping[str, Any], Mapping[str, Any]], Expectation] = lambda _binding, _body: None
    adds: Callable[[str, Any], Mapping[str, int]] | None = None
    programs: tuple[SimulatedProgram, ...] = ()
    takes: Callable[[str, Any], bool] = lambda _type, _input: True
    ends: Callable[[str, Any, Any], str | None] | None = None
    data: Mapping[str, Any] | None = None
    limits: Limits = field(default_factory=_limits)

    def __post_init__(self) -> None:
        """Check what would only come to light in the middle of a simulation."""
        unknown = sorted(set(self.spare) - {policy.name for policy in self.policies})
        if not self.actors:
            raise RefusedError(
                ErrorCode.INVALID_SIMULATION, "A scenario needs an actor at least; give it players (actors=...)."
            )
        if unknown:
            raise RefusedError(
                ErrorCode.INVALID_SIMULATION, f"spare names {', '.join(unknown)}, which policies does not hold."
            )


def load_scenario(reference: str) -> Scenario:
    """Return the scenario of a reference, ``module:attribute`` or ``file.py:attribute``.

    Raises:
        RefusedError: ``NOT_LOADED``; ``NOT_A_SCENARIO`` for something else.
    """
    found = load_reference(reference, base=Path())
    if not isinstance(found, Scenario):
        raise RefusedError(
            ErrorCode.NOT_A_SCENARIO, f"{reference!r} is a {type(found).__name__}; it should be a Scenario."
        )
    return found
