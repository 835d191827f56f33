"""Effects whose handlers are not trusted: made in a child process that is held to what was declared for the effect.

The handler gets of ``call`` the plain facts. It cannot ask the engine anything: when its leases
are lost, or nobody waits for it any more, it is killed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Final

from host.confinement.private import private_folder
from host.effects import EffectCallInfo, EffectFailure
from host.isolation import ENVIRONMENT, Code, converse, program
from host.observation.audit import exempt
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json

__all__ = ["IsolatedHandlerError", "perform"]

_FACTS: Final = (
    "effect_type",
    "idempotency_key",
    "intent_id",
    "proposal_id",
    "now",
    "time_limit_ms",
    "attempt",
    "requested_at",
    "fencing_token",
)
"""What of a call a handler in a process of its own is given."""


class IsolatedHandlerError(Exception):
    """A handler in a process of its own raised, or ended without an answer."""


def perform(effect_type: str, function: Callable[..., Any], params: Mapping[str, Any], call: EffectCallInfo) -> Any:
    """Call a handler in a process of its own, and return its answer.

    Args:
        effect_type: the effect's name, for errors.
        function: the handler's, at the top level of a module.
        params: the effect's parameters, JSON.
        call: what the handler is told besides.

    Raises:
        IsolatedHandlerError: it raised, or gave no answer.
    """
    if call.workspace is None:
        return _unavailable(effect_type, "this realm has no workspace")
    with exempt(), private_folder(call.proposal_id) as private:  # what the child does is watched in its own way
        pipe = subprocess.PIPE
        try:
            code = Code.of(function)
            command = call.start(
                program(),
                cwd=str(call.workspace.root),
                env={**ENVIRONMENT, "TMPDIR": private},
                read=code.reads,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
            )
        except RefusedError as refused:
            return EffectFailure(refused.code, refused.message, refused.details)
        if not command.is_confined:  # it waits for its code still
            command.close()
            return _unavailable(effect_type, "the kernel has no Landlock or no way to watch")
        _, answer = converse(
            command,
            code,
            [read_json(canonical_bytes(params))],
            call={name: getattr(call, name) for name in _FACTS},
            timeout_ms=call.time_limit_ms,
            is_cancelled=call.is_cancelled,
        )
    if answer.raised is not None:
        raise IsolatedHandlerError(f"{answer.raised['type']}: {answer.raised['message']}")
    return answer.value if answer.failed is None else EffectFailure(**answer.failed)


def _unavailable(effect_type: str, why: str) -> EffectFailure:
    told = f"The handler of {effect_type!r} has to run in a confined process of its own, and {why}; nothing was done."
    return EffectFailure("CONFINEMENT_UNAVAILABLE", told)
