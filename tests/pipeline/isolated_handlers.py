"""Handlers of effects that run in a process of their own, for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from worldprotocol import EffectFailure, EffectResult, handler


class Write(BaseModel):
    path: str
    text: str


@handler("own.write", input=Write, isolation="process", touches=lambda params: [("MUTATES", f"FILE:{params.path}")])
def write(params: Write, call: Any) -> Any:
    Path(params.path.lstrip("/")).write_text(params.text)
    return EffectResult({"pid": os.getpid(), "key": call.idempotency_key, "token": os.environ.get("TOKEN")})


@handler("own.stray", isolation="process")
def stray(params: dict[str, Any], _: Any) -> Any:
    exec(params["code"], {"os": os})
    return "done"


@handler("own.fail", isolation="process")
def fail(params: dict[str, Any], _: Any) -> Any:
    if params["how"] == "failed":
        return EffectFailure("BAD_DAY", "It rains.", {"mm": 3})
    raise KeyError("missing")


@handler("own.later", isolation="process")
async def later(params: dict[str, Any], _: Any) -> Any:
    return params


HANDLERS = [write, stray, fail, later]
