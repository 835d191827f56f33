"""A stand-in for the Responses API on this machine: Codex asks it instead of a model.

To a request it answers with the call of the script, and to results of tools with a last message.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

SHELL = "exec_command"
RESULTS = ("function_call_output", "custom_tool_call_output")


class ScriptedResponses(BaseHTTPRequestHandler):
    """Answers ``POST /v1/responses`` with a stream of events."""

    protocol_version = "HTTP/1.1"
    shell = ""
    seen: list[Any] = []  # noqa: RUF012  # each script has a class of its own

    def do_POST(self) -> None:
        """Answer with the next item of the script."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        is_answered = any(one.get("type") in RESULTS for one in body.get("input", ()))
        item = _message("Done.") if is_answered else _call({"cmd": self.shell, "yield_time_ms": 600_000})
        stream = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in _events(item)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(stream)))
        self.end_headers()
        self.wfile.write(stream)

    def do_GET(self) -> None:
        """Say that there is nothing else."""
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def scripted_responses(shell: str) -> Iterator[str]:
    """Serve the script, and yield the address.

    Args:
        shell: the command that the model runs.
    """
    script = type("Script", (ScriptedResponses,), {"shell": shell, "seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), script) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def _call(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{uuid4().hex}",
        "call_id": f"call_{uuid4().hex}",
        "name": SHELL,
        "arguments": json.dumps(given),
    }


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{uuid4().hex}", "role": "assistant", "content": content}


def _events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    response = {"id": f"resp_{uuid4().hex}", "object": "response"}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {
        "type": "response.completed",
        "response": {**response, "status": "completed", "output": [item], "usage": usage},
    }
