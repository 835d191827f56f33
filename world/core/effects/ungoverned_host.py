"""Host without governance: intents on one snapshot in memory, for trials and tests of a domain.

``create_host(...).dispatch(...)`` is the host of the intent document, as a facade of ``compute``. No authority decides,
nothing is recorded, no lease is taken and no scope is enforced; ``worldprotocol.Realm`` is the governed way.
Source: the intent document, Intent in Code; HC-compute, HC-handlers, IC-reentry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from world.core.compute import Computation, compute, genesis
from world.core.domain import Domain
from world.core.domain_files import load_domain
from world.core.execution import MAX_EFFECTS, ComputeContext, EffectAnswer, Invocation
from world.model.snapshot import ErrorValue, Requirement, Snapshot

__all__ = ["UngovernedEffect", "UngovernedHost", "create_host"]

UngovernedEffect = Callable[[Mapping[str, Any]], EffectAnswer]
"""Handler of an effect: returns the result for its parameters."""


def create_host(
    schema: Domain[Any] | Mapping[str, Any] | str | Path,
    *,
    now: Callable[[], int],
    initial_data: Mapping[str, Any] | None = None,
    effects: Mapping[str, UngovernedEffect] | None = None,
) -> UngovernedHost:
    """Return a host without governance on the first snapshot of a domain.

    Args:
        schema: a domain, the data of a portable one, or its file.
        now: the time in ms since 1970, called once for each intent.
        initial_data: initial values of top-level fields, for other values than the defaults.
        effects: the handlers by type of effect.

    Raises:
        RefusedError: ``INVALID_DATA`` as ``genesis``, and the errors of ``load_domain``.
    """
    domain = schema if isinstance(schema, Domain) else load_domain(schema)
    snapshot = genesis(domain, ComputeContext(now(), "genesis"), initial_data)
    return UngovernedHost(domain, snapshot, now, dict(effects or {}))


class UngovernedHost:
    """Host that computes intents one after the other; see ``create_host``.

    Args:
        domain: the domain.
        snapshot: the state before the first intent.
        now: the time in ms since 1970.
        effects: the handlers by type of effect; more may be added.
    """

    def __init__(
        self, domain: Domain[Any], snapshot: Snapshot, now: Callable[[], int], effects: dict[str, UngovernedEffect]
    ) -> None:
        """Start with a snapshot."""
        self.domain = domain
        self.snapshot = snapshot
        self.effects = effects
        self._now = now
        self._journals: dict[str, dict[str, EffectAnswer]] = {}  # of pending intents, by intentId

    def dispatch(self, intent: Invocation) -> Computation:
        """Compute an intent, with the effects that it requires.

        Args:
            intent: action, input and intentId, which is new for each request.

        Returns:
            The computation. ``complete`` and ``halted``: its snapshot is the state of the host now. ``error``: the data
            is as before; a handler that raises is the error value ``EFFECT_RAISED``. ``pending``: an effect has no
            handler, and the state is as before; the same intent repeats no effect once there is one.
        """
        context = ComputeContext(self._now(), intent.intent_id)
        journal = self._journals.pop(intent.intent_id, {})
        done = compute(self.domain, self.snapshot, intent, context, journal)
        for _ in range(MAX_EFFECTS):
            if done.status != "pending" or not all(one.type in self.effects for one in done.requirements):
                break
            journal |= {one.id: self._answer(one, context) for one in done.requirements}
            done = compute(self.domain, self.snapshot, intent, context, journal)
        if done.status == "pending":
            self._journals[intent.intent_id] = journal
        else:
            self.snapshot = done.snapshot
        return done

    def _answer(self, required: Requirement, context: ComputeContext) -> EffectAnswer:
        try:
            return self.effects[required.type](required.params)
        except Exception as error:  # noqa: BLE001 - every failure of a handler is a value (HC-handlers)
            message = f"The handler of {required.type!r} raised {type(error).__name__}: {error}"
            failed = ErrorValue.at("EFFECT_RAISED", message, required.action_id, required.node_path, context.now)
            return EffectAnswer(error=failed)
