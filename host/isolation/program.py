"""Program of an isolated child process: reads a call from stdin, runs it, writes the answer to stdout as JSON.

The parent passes its source as text, so that the child can be confined to files that do not include this one. It
imports only the standard library. Output of the called code goes to stderr.
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
    """Run the call that stdin describes; return 0, or 1 where the code raised."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        with os.fdopen(os.dup(0), "rb") as request_stream:
            given = json.load(request_stream)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        answer = call_code(given)
        answers.write(json.dumps(answer, allow_nan=False).encode())
    return 1 if "raised" in answer else 0


def call_code(given: Mapping[str, Any]) -> dict[str, Any]:
    """Call the code; return its answer, or the exception it raised."""
    sys.path += given["path"]
    try:
        function = load_function(given)
        arguments = list(given["arguments"])
        if given["call"] is not None:
            arguments.append(types.SimpleNamespace(**given["call"]))
        value = function(*arguments)
        if hasattr(value, "__await__"):
            value = run_coroutine(value)
        answer = answer_to_wire(value)
        json.dumps(answer, allow_nan=False)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - every exception is reported to the parent
        trace = "".join(traceback.format_exception(error))
        return {"raised": {"type": type(error).__name__, "message": str(error), "trace": trace}}
    return answer


def load_function(given: Mapping[str, Any]) -> Any:
    """Return the function to call: ``main`` of a source text, or a function of a module."""
    if "source" in given:
        names: dict[str, Any] = {"__name__": "__isolated__"}
        exec(compile(given["source"], "<source>", "exec"), names)  # noqa: S102 - confined to this process
        return names.get("main", lambda _: None)
    if "file" in given:
        spec = importlib.util.spec_from_file_location(given["module"], given["file"])
        if spec is None or spec.loader is None:
            raise ImportError(f"{given['file']} is not a Python module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[given["module"]] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(given["module"])
    function: Any = module
    for name in given["name"].split("."):
        function = getattr(function, name)
    if hasattr(function, "isolation"):  # an EffectHandler made from the function
        handler = function
        return lambda params, call: handler.function(handler.read_params(params), call)
    return function


def run_coroutine(value: Any) -> Any:
    """Return the result of an ``async`` function."""
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def answer_to_wire(value: Any) -> dict[str, Any]:
    """Convert an answer to JSON; accepts ``EffectFailure``, and ``EffectResult`` without patches."""
    kind = type(value).__name__ if type(value).__module__ == "host.effects" else ""
    if kind == "EffectFailure":
        context = None if value.context is None else dict(value.context)
        failed = {"code": value.code, "message": value.message, "context": context, "retryable": value.retryable}
        return {"failed": failed}
    if kind == "EffectResult":
        if value.patches:
            raise TypeError("an isolated handler cannot return patches; return a value and let the action write it")
        value = value.value
    return {"value": value}


if __name__ == "__main__":
    sys.exit(main())
