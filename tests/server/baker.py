"""The handlers of remote workers of the kiosk; each performance is a line in the file ``BAKED``."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from worldprotocol import EffectResult, handler

BAKED = "KIOSK_BAKED"
"""Environment variable with the file."""

KILLED_AT = "KIOSK_KILLED_AT"
"""Environment variable with the number of the line after which the process kills itself with SIGKILL."""


@handler("oven.bake", idempotent=True, time_limit_ms=1_000)
def bake(params: Any, call: Any) -> Any:
    note(call.idempotency_key)
    return f"baked {params['item']}"


def note(key: str) -> None:
    path = Path(os.environ[BAKED])
    with path.open("a", encoding="utf-8") as lines:
        lines.write(f"{key}\n")
    if str(len(path.read_text().splitlines())) == os.environ.get(KILLED_AT):
        os.kill(os.getpid(), signal.SIGKILL)


def find(effect: Any) -> EffectResult | None:
    sent = Path(os.environ[BAKED]).read_text().splitlines()
    return EffectResult(f"found {effect.params['number']}") if effect.idempotency_key in sent else None


@handler("pigeon.send", time_limit_ms=60_000, look_up=find)
def send(params: Any, call: Any) -> Any:
    note(call.idempotency_key)
    return f"sent {params['number']}"
