"""A stand-in for the Messages API on this machine: Claude Code asks it instead of a model.

To a request it answers with the calls of the script, to results of tools by repeating them, and to any other message
with the calls that were not yet decided.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

Block = dict[str, Any]


class ScriptedMessages(BaseHTTPRequestHandler):
    """Answers ``POST /v1/messages`` with a stream of events."""

    protocol_version = "HTTP/1.1"
    request_text = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    def do_POST(self) -> None:
        """Answer with the next message of the script."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        blocks = self._next(body["messages"])
        stream = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in _events(blocks)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(stream)))
        self.end_headers()
        self.wfile.write(stream)

    def do_HEAD(self) -> None:
        """Say that the server is there."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Print nothing."""

    def _next(self, messages: list[dict[str, Any]]) -> list[Block]:
        every = [block for message in messages for block in _blocks(message)]
        spoke = [at for at, one in enumerate(messages) if one["role"] == "assistant"]
        new = [block for message in messages[max(spoke, default=-1) + 1 :] for block in _blocks(message)]
        results = [one for one in new if one["type"] == "tool_result"]
        if results:
            return [{"type": "text", "text": "\n".join(map(_text, results))}]
        if any(self.request_text in one.get("text", "") for one in new):
            return [_call(name, given) for name, given in self.calls]
        undecided = {one["tool_use_id"] for one in every if one["type"] == "tool_result" and "Not yet" in _text(one)}
        again = {json.dumps(one["input"]): one for one in every if one.get("id") in undecided}
        return [_call(one["name"], one["input"]) for one in again.values()] or [
            {"type": "text", "text": "There is nothing to do."}
        ]


@contextmanager
def scripted_messages(request: str, calls: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Serve the script, and yield the address.

    Args:
        request: the text to which the answer is the calls.
        calls: names and inputs of tools.
    """
    script = type("Script", (ScriptedMessages,), {"request_text": request, "calls": tuple(calls)})
    with ThreadingHTTPServer(("127.0.0.1", 0), script) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _blocks(message: dict[str, Any]) -> list[Block]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(result: Block) -> str:
    content = result.get("content", "")
    return content if isinstance(content, str) else "\n".join(one.get("text", "") for one in content)


def _call(name: str, given: dict[str, Any]) -> Block:
    return {"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": name, "input": given}


def _events(blocks: list[Block]) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    for at, block in enumerate(blocks):
        is_text = block["type"] == "text"
        begun = {**block, "text": ""} if is_text else {**block, "input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if is_text
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        yield {"type": "content_block_start", "index": at, "content_block": begun}
        yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    reason = "tool_use" if any(one["type"] == "tool_use" for one in blocks) else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}
