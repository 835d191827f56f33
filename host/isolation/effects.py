"""Effects of untrusted handlers, run in a child process confined to what was declared for the effect.

The handler receives only the plain facts of ``call``. It cannot call back into the engine; when its leases are lost or
the effect is cancelled, the process is killed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Final

from host.confinement.private import private_folder
from host.effect_call import EffectCallInfo
from host.effects import EffectFailure
from host.isolation.child_process import ENVIRONMENT, Code, converse, program
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
"""Members of a call that an isolated handler receives."""


class IsolatedHandlerError(Exception):
    """A handler in a child process raised, or ended without an answer."""


def perform(effect_type: str, function: Callable[..., Any], params: Mapping[str, Any], call: EffectCallInfo) -> Any:
    """Call a handler in a child process and return its answer.

    Args:
        effect_type: the effect's name, for errors.
        function: the handler's function, at the top level of a module.
        params: the effect's parameters, JSON.
        call: further facts for the handler.

    Raises:
        IsolatedHandlerError: the handler raised, or gave no answer.
    """
    if call.workspace is None:
        return _unavailable(effect_type, "this realm has no workspace")
    with exempt(), private_folder(call.proposal_id) as private:  # the watcher observes the child, not this thread
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
        if not command.is_confined:  # it still waits for its code
            command.close()
            return _unavailable(effect_type, "this kernel has no Landlock or no seccomp notification")
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
    message = f"The handler of {effect_type!r} must run in a confined process, and {why}; nothing was done."
    return EffectFailure("CONFINEMENT_UNAVAILABLE", message)
