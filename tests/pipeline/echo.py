"""A server on the loopback interface that sends back what it was sent, and notes it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Echo:
    """Answers each request with its own path, headers and body as JSON."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        echo = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                told = {"path": self.path, "headers": dict(self.headers), "body": body}
                echo.seen.append(told)
                if self.path.startswith("/moved"):
                    self.send_response(302)
                    self.send_header("location", "/landed?access_token=issued-by-the-server")
                    self.end_headers()
                    return
                answer = json.dumps(told).encode()
                self.send_response(418 if self.path.startswith("/refused") else 200)
                self.send_header("content-type", "application/json")
                self.send_header("set-cookie", "session=issued-by-the-server")
                self.send_header("x-echo", self.headers.get("authorization", ""))
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_GET  # noqa: N815 - the name that the library calls

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
