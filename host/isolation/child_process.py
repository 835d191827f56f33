"""Python code in a child process that is confined like a governed command.

The code is a text that defines ``main``, or a function of a module. Its arguments and its answer are JSON: the parent
never executes anything that the child sends. The child is another interpreter with a small environment and no
descriptors but its three pipes, so it shares no memory, open files, keys or audit hooks with the engine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from host.builtin.children import Child, ChildExit
from host.confinement import RunningCommand
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import read_json, sha256_hex

__all__ = ["ENVIRONMENT", "Answer", "Code", "Isolation", "converse", "program"]

Isolation = Literal["thread", "process"]
"""Where code runs: in a thread of the engine's process under audit hooks, or in a confined process of its own."""

MAX_ANSWER_BYTES: Final = 1 << 20
MAX_TIMEOUT_MS: Final = 7 * 86_400_000
ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
"""Environment of the child, besides its folder for temporary files."""

_PROGRAM: Final = Path(__file__).with_name("program.py").read_text(encoding="utf-8")
_PACKAGES: Final = ("world", "projections", "authority", "host", "worldprotocol")


@dataclass(frozen=True, slots=True)
class Code:
    """Code that the child calls.

    Args:
        name: for the record and for errors: ``module:function``, or the SHA-256 of a text.
        wire: the part of the request that describes the code.
        reads: files and folders that the child reads: the module's file or package, and the engine's packages.
    """

    name: str
    wire: Mapping[str, Any]
    reads: tuple[str, ...] = ()

    @classmethod
    def of(cls, code: str | Callable[..., Any]) -> Code:
        """Describe a text or a function as code for a child.

        Args:
            code: a text that defines ``main``, or a function at the top level of a module.

        Raises:
            RefusedError: ``INVALID_VALUE`` for a function that a child cannot import.
        """
        if isinstance(code, str):
            return cls(f"sha256:{sha256_hex(code.encode())}", {"source": code, "path": []})
        name = getattr(code, "__qualname__", "")
        module = sys.modules.get(getattr(code, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        if module is None or not str(file).endswith(".py") or not _is_importable(module, name, code):
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"{code!r} cannot run in a child process: pass a function at the top level of a module that is a "
                "file, or a text that defines main(argument).",
            )
        wire, reads = _of_module(module, os.path.abspath(str(file)))
        packages, folder = _engine()
        path = [*wire.pop("path"), folder]
        return cls(f"{module.__name__}:{name}", {**wire, "name": name, "path": path}, (*reads, *packages))


def _is_importable(module: ModuleType, name: str, code: Callable[..., Any]) -> bool:
    """Whether a name in a module refers to the function, or to the effect handler made from it."""
    attribute: Any = module
    for part in name.split("."):
        attribute = getattr(attribute, part, None)
    return attribute is code or getattr(attribute, "function", None) is code


def _of_module(module: ModuleType, file: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return how the child imports a module, and what it reads for that: its package, or its file alone."""
    top = sys.modules.get(module.__name__.partition(".")[0])
    folders = [os.path.abspath(folder) for folder in getattr(top, "__path__", ())]
    if folders:
        return {"module": module.__name__, "path": [os.path.dirname(folder) for folder in folders]}, tuple(folders)
    name = "__isolated__" if module.__name__ == "__main__" else module.__name__
    return {"module": name, "file": file, "path": []}, (file,)


def _engine() -> tuple[list[str], str]:
    """Return the folders of the engine's packages, which define the handler decorators, and their parent."""
    folder = str(Path(__file__).resolve().parents[2])
    return [os.path.join(folder, name) for name in _PACKAGES if os.path.isdir(os.path.join(folder, name))], folder


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the child.

    Args:
        value: its value, JSON.
        failed: the failure of an effect handler: ``code``, ``message``, ``context``, ``retryable``.
        raised: the exception: ``type``, ``message``, ``trace``; or why there is no answer.
        output: the end of its output.
    """

    value: Any = None
    failed: Mapping[str, Any] | None = None
    raised: Mapping[str, Any] | None = None
    output: str = field(default="", repr=False)


def program() -> list[str]:
    """Return the command line of the child."""
    return [sys.executable, "-I", "-B", "-c", _PROGRAM]


def converse(
    command: RunningCommand,
    code: Code,
    arguments: Sequence[Any],
    *,
    call: Mapping[str, Any] | None = None,
    timeout_ms: int | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> tuple[int, Answer]:
    """Send the call to the child, wait for it to end, and return its exit code and its answer.

    Args:
        command: the child, started with ``program`` and three pipes; it is ended and closed here.
        code: the code to call.
        arguments: JSON.
        call: facts for an effect handler, passed as a last argument with attributes; None for none.
        timeout_ms: time after which the child is killed, in milliseconds; None is a week.
        is_cancelled: whether the child must be killed now.
    """
    request = json.dumps({**code.wire, "arguments": list(arguments), "call": call}).encode()
    limit = MAX_TIMEOUT_MS if timeout_ms is None else timeout_ms
    ended = Child(command).run(request, timeout_ms=limit, kept=MAX_ANSWER_BYTES, is_cancelled=is_cancelled)
    answer = _read(ended)
    return ended.code if answer.raised is None else ended.code or 1, answer


def _read(ended: ChildExit) -> Answer:
    """Parse the answer; a malformed one is reported as an exception of the code."""
    output = ended.stderr.tail.decode("utf-8", "replace")
    if ended.why != "by itself":
        return Answer(raised=_raised("TimeoutError", f"The child was {ended.why} and killed."), output=output)
    if ended.stdout.size > MAX_ANSWER_BYTES:
        return Answer(
            raised=_raised("ValueError", f"The answer is longer than {MAX_ANSWER_BYTES} bytes."), output=output
        )
    try:
        answer = read_json(ended.stdout.tail)
    except (RefusedError, ValueError):
        answer = None
    if not isinstance(answer, dict) or not answer.keys() & {"value", "failed", "raised"}:
        how = f"signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
        return Answer(raised=_raised("EOFError", f"The child ended with {how} and without an answer."), output=output)
    for name, names in (("raised", _RAISED), ("failed", _FAILED)):
        part = answer.get(name)
        if name in answer and not (isinstance(part, dict) and part.keys() == names):
            return Answer(raised=_raised("ValueError", "The answer does not have the expected members."), output=output)
    return Answer(answer.get("value"), answer.get("failed"), answer.get("raised"), output)


_RAISED: Final = {"type", "message", "trace"}
_FAILED: Final = {"code", "message", "context", "retryable"}


def _raised(kind: str, message: str) -> dict[str, str]:
    return {"type": kind, "message": message, "trace": ""}
