"""An MCP server on stdin and stdout that does what a file says, and notes each call that reaches it.

Usage: ``python scripted_upstream.py FOLDER``. ``FOLDER/script.json`` has ``tools``, ``instructions`` and ``pages``, and
is read again for each request; ``FOLDER/calls`` has a line for each call of a tool.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])


def say(message: Any) -> None:
    """Write a line."""
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def answer(number: Any, result: Any) -> None:
    """Answer a request."""
    say({"jsonrpc": "2.0", "id": number, "result": result})


def text(words: str, **more: Any) -> dict[str, Any]:
    """Return the result of a tool."""
    return {"content": [{"type": "text", "text": words}], **more}


def note(params: Any) -> None:
    """Note a call before anything comes of it."""
    with (FOLDER / "calls").open("a", encoding="utf-8") as calls:
        calls.write(json.dumps(params) + "\n")


def changed(**members: Any) -> None:
    """Change the script in the middle of a session."""
    path = FOLDER / "script.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **members}))


def babble(number: Any) -> None:
    """Answer once, among lines that are no answers."""
    for line in ("no JSON", "[]", "{}", "null", "\x1b[2J\x00", "{" * 5_000):
        say(line)
    answer(999, {})
    say({"jsonrpc": "2.0", "id": 999, "result": 7})
    say({"jsonrpc": "2.0", "method": "notifications/unheard/of", "params": {}})
    say({"jsonrpc": "2.0", "id": "1", "method": "shell/run", "params": {"command": "id"}})
    answer(number, text("first"))
    answer(number, text("second"))


def hold() -> None:
    """Wait until the test lets it go on, or the proxy is gone."""
    parent = os.getppid()
    while not (FOLDER / "go").exists() and os.getppid() == parent:
        time.sleep(0.05)


RAW = {
    "garbled": '{"jsonrpc": "2.0", "id": %d, "result": 7}',
    "odd": '{"jsonrpc": "2.0", "id": %d, "result": {"content": "no list", "large": 123456789012345678901234567890}}',
    "half": '{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "\\ud83d"}]}}',
    "nan": '{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "number": NaN}}',
    "infinite": '{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "number": [[1e400]]}}',
    "digits": '{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "number": ' + "9" * 5_000 + "}}",
    "deep": '{"jsonrpc": "2.0", "id": %d, "result": {"content": ' + "[" * 5_000 + "]" * 5_000 + "}}",
    "half_error": '{"jsonrpc": "2.0", "id": %d, "error": {"code": 1, "message": "\\udc00"}}',
    "refuses": '{"jsonrpc": "2.0", "id": %d, "error": {"code": -32602, "message": "no such argument"}}',
}
"""Answers of tools that are written as they are."""


def call(number: Any, params: dict[str, Any]) -> None:
    """Do what the name of a tool says."""
    note(params)
    name, given = params["name"], params["arguments"]
    if name == "hang":
        return
    if name == "die":
        os._exit(3)
    if name == "held":
        hold()
    if name == "changes":
        changed(**given)
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    for token in [params["_meta"]["progressToken"], 99, "p"] if name == "tells" else []:
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
    if name == "babble":
        babble(number)
    elif name in RAW:
        say(RAW[name] % number)
    else:
        answer(number, result_of(name, given))


def result_of(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a tool."""
    if name == "environment":
        return text(" ".join(one for one in os.environ if one.startswith("WORLDCTL_")))
    if name == "fails":
        return text("\x1b[31mno such table\x1b[0m", isError=True)
    if name == "huge":
        return text("x" * given["bytes"])
    return text(f"{name} {json.dumps(given)}")


def listed(script: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Return a page of the tools."""
    pages = script.get("pages")
    if pages is None:
        return {"tools": script["tools"]}
    return {"tools": script["tools"], "nextCursor": str(int(params.get("cursor", "0")) + 1)}


def main() -> None:
    """Answer what comes on stdin."""
    for line in sys.stdin:
        request = json.loads(line)
        script = json.loads((FOLDER / "script.json").read_text(encoding="utf-8"))
        method, number, params = request.get("method"), request.get("id"), request.get("params") or {}
        if method == "initialize":
            sys.stderr.write(script.get("complaint", ""))
            sys.stderr.flush()
            told = {
                "protocolVersion": script.get("version", params["protocolVersion"]),
                "capabilities": {"tools": {}, "resources": {}, "tasks": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            }
            answer(number, {**told, "instructions": script["instructions"]} if "instructions" in script else told)
        elif method == "tools/list":
            if script.get("holds"):
                hold()
            answer(number, script["listing"] if "listing" in script else listed(script, params))
        elif method == "tools/call":
            call(number, params)
        elif method == "resources/read":
            answer(number, {"contents": [{"uri": params["uri"], "text": "beside the policy"}]})
        elif method is not None and number is not None:
            say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}})


if __name__ == "__main__":
    main()
