"""The program of an isolated child: reads from stdin what to call, calls it, and writes the answer to stdout, as JSON.

It is handed to the child as text, so that the child can be confined to files that do not include this one. Only the
standard library is imported here. What the called code prints goes to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def main() -> int:
    """Call what stdin names; returns the exit code: 0, or 1 where the code raised."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        with os.fdopen(os.dup(0), "rb") as asked:
            given = json.load(asked)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        answer = answered(given)
        answers.write(json.dumps(answer, allow_nan=False).encode())
    return 1 if "raised" in answer else 0


def answered(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the code answered, or what it raised."""
    sys.path += given["path"]
    try:
        function = found(given)
        arguments = list(given["arguments"])
        if given["call"] is not None:
            arguments.append(types.SimpleNamespace(**given["call"]))
        value = function(*arguments)
        if hasattr(value, "__await__"):
            value = awaited(value)
        answer = answer_of(value)
        json.dumps(answer, allow_nan=False)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        trace = "".join(traceback.format_exception(error))
        return {"raised": {"type": type(error).__name__, "message": str(error), "trace": trace}}
    return answer


def found(given: Mapping[str, Any]) -> Any:
    """Return the function that is named: ``main`` of a text, or one of a module."""
    if "source" in given:
        names: dict[str, Any] = {"__name__": "__isolated__"}
        exec(compile(given["source"], "<source>", "exec"), names)  # noqa: S102 - what the walls are for
        return names.get("main", lambda _: None)
    if "file" in given:
        spec = importlib.util.spec_from_file_location(given["module"], given["file"])
        if spec is None or spec.loader is None:
            raise ImportError(f"{given['file']} is no Python module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[given["module"]] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(given["module"])
    function: Any = module
    for name in given["name"].split("."):
        function = getattr(function, name)
    if hasattr(function, "isolation"):  # the handler that the function became
        handler = function
        return lambda params, call: handler.function(handler.taken(params), call)
    return function


def awaited(value: Any) -> Any:
    """Return what an ``async`` function answers."""
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def answer_of(value: Any) -> dict[str, Any]:
    """Return an answer as JSON; of an effect handler also ``EffectResult`` without patches, and ``EffectFailure``."""
    kind = type(value).__name__ if type(value).__module__ == "host.effects" else ""
    if kind == "EffectFailure":
        context = None if value.context is None else dict(value.context)
        failed = {"code": value.code, "message": value.message, "context": context, "retryable": value.retryable}
        return {"failed": failed}
    if kind == "EffectResult":
        if value.patches:
            raise TypeError("an isolated handler cannot answer patches; answer a value, and let the action write it")
        value = value.value
    return {"value": value}


if __name__ == "__main__":
    sys.exit(main())
