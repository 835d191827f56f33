"""The client of ``worldctl``: what it imports, how it fails, and how it is stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import COMMAND, ROOT, environment
from tests.remote.commanded import ended
from tests.server.served import PATH, Served, founded, serving
from tests.support.patience import PATIENCE_S, until
from world.errors import RefusedError
from worldprotocol.api.remote.addresses import read_server_address

pytestmark = pytest.mark.slow

LIMITS = "requests_per_second = 10000\nburst = 10000"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with two realms."""
    place = founded(tmp_path_factory.mktemp("client"), server=LIMITS)
    with serving(place, "--realm", f"main={place.log}", "--realm", f"other={place.log}") as running:
        yield running


def asked(served: Served, *words: str, actor: str | None = "all", **variables: str) -> Any:
    """Run a command on the server, in a folder without a realm."""
    folder = served.place.folder / "away"
    folder.mkdir(exist_ok=True)
    token = {} if actor is None else {"WORLDCTL_TOKEN": served.place.tokens[actor]}
    return ended(folder, list(words), token | variables)


MOST_MODULES = 200
"""Modules of the client, of which 100 are those of click; ``python -m bench remote`` measures how long it takes."""

HEAVY = (
    "sqlalchemy",
    "pydantic",
    "httpx",
    "fastapi",
    "rich",
    "asyncio",
    "authority",
    "host",
    "projections",
)


@pytest.mark.parametrize("command", ["inbox", "lease list"])
def test_a_command_over_a_server_imports_neither_the_engine_nor_httpx(served: Served, command: str) -> None:
    code = (
        "import sys; before = set(sys.modules); from worldprotocol.cli.program import run;"
        "code = run(sys.argv[1:]); loaded = set(sys.modules) - before;"
        f"heavy = [name for name in loaded if name.split('.')[0] in {HEAVY!r}];"
        "print(code, len(loaded), heavy, file=sys.stderr)"
    )
    words = ["--server", served.url, "--realm", "main", *command.split(), "--json"]
    environ = environment() | {"WORLDCTL_TOKEN": served.place.tokens["all"]}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout in ("[]\n", '{"leases":[]}\n')
    code_and_count, _, heavy = done.stderr.strip().partition(" [")
    assert heavy == "]"
    assert code_and_count.split()[0] == "0"
    assert int(code_and_count.split()[1]) <= MOST_MODULES


def test_the_server_comes_from_an_option_or_the_environment_and_the_token_from_a_file(served: Served) -> None:
    there = {"WORLDCTL_SERVER": served.url}
    assert asked(served, "inbox", "--realm", "main", "--json", **there).out == "[]\n"
    token = served.place.folder / "away" / "token"
    token.write_text(served.place.tokens["all"] + "\n")
    words = ["inbox", "--json", "--server", served.url, "--realm=main", "--token-file", str(token)]
    assert asked(served, *words, actor=None).out == "[]\n"
    token.write_text("\n")
    assert "TOKEN_NOT_VALID" in asked(served, *words, actor=None).err
    assert "TOKEN_NOT_VALID" in asked(served, *words[:-1], "nowhere", actor=None).err
    assert asked(served, "inbox", "--local", **there).code == 2  # no log here
    assert "LOG_NOT_FOUND" in asked(served, "inbox", "--log", "x.db", **there).err
    assert asked(served, "klis", "schema", **there).code == 0  # needs no server
    for words in (["--log", "x"], ["--config", "x"], ["--paranoid"], ["--local"]):
        said = asked(served, "inbox", "--server", served.url, *words)
        assert (said.code, "contradict each other" in said.err) == (2, True)
    assert asked(served, "inbox", "--token-file", "x").code == 2


def test_of_several_realms_one_is_named(served: Served) -> None:
    said = asked(served, "inbox", "--server", served.url)
    assert (said.code, said.out) == (2, "")
    assert "several realms: main, other. Name one with --realm." in said.err
    said = asked(served, "inbox", "--server", served.url, "--realm", "third")
    assert (said.code, "[UNKNOWN_REALM]" in said.err) == (1, True)
    assert "You have no right in any realm" in asked(served, "inbox", "--server", served.url, actor="nil").err


def test_callers_without_credentials_or_rights_are_refused_in_one_sentence(served: Served) -> None:
    there = ["--server", served.url, "--realm", "main"]
    for words, actor, variables, code in (
        (["inbox"], None, {}, "SIGN_IN_REQUIRED"),
        (["inbox"], None, {"WORLDCTL_TOKEN": "wp1_x_y"}, "TOKEN_NOT_VALID"),
        (["state"], "bob", {}, "RIGHT_MISSING"),
    ):
        said = asked(served, *there, *words, "--json", actor=actor, **variables)
        assert (said.code, said.json["error"]["code"]) == (1, code)
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1
        assert ("Give an API token with --token-file" in said.err) is (code == "SIGN_IN_REQUIRED")


def test_what_no_server_executes_says_why(served: Served) -> None:
    for words, why in (
        (["run", "--", "true"], "works on the workspace"),
        (["adopt"], "runs the program of the realm"),
        (["export", "x.jsonl"], "redirect what it prints"),
        (["recheck", "--jobs", "2"], "with other options and arguments only"),
        (["clock", "confirm", "--reason", "x"], "confirms the clock of the machine"),
    ):
        said = asked(served, "--server", served.url, *words)
        assert (said.code, why in said.err, "[NOT_OVER_SERVER]" in said.err) == (2, True, True), said.err
    said = asked(served, "--server", served.url, "worker")
    assert "write --server after `worker`" in said.err


class Scripted(BaseHTTPRequestHandler):
    """Answers each request with the next answer of a script."""

    script: list[tuple[int, Mapping[str, str], bytes]]
    seen: list[str]

    def do_GET(self) -> None:  # named by the library
        status, headers, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.seen.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def answering(*script: tuple[int, Mapping[str, str], bytes], tls: ssl.SSLContext | None = None) -> Iterator[Any]:
    """Run a foreign server that answers as scripted; the last answer is repeated."""
    kind = type("Answers", (Scripted,), {"script": list(script), "seen": []})
    with HTTPServer(("127.0.0.1", 0), kind) as foreign:
        if tls is not None:
            foreign.socket = tls.wrap_socket(foreign.socket, server_side=True)
        running = threading.Thread(target=foreign.serve_forever)
        running.start()
        try:
            yield foreign.server_address[1], kind
        finally:
            foreign.shutdown()
            running.join()


LINES = {"Content-Type": "application/x-ndjson"}
PROBLEM = {"Content-Type": "application/problem+json"}
DONE = (200, LINES, b'["out","here\\n"]\n["exit",0]\n')


def problem(code: str, status: int, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    body = {"code": code, "detail": f"It is {code}.", "title": "x", "status": status, "type": "x"}
    return (
        status,
        PROBLEM | {name.replace("_", "-"): value for name, value in headers.items()},
        json.dumps(body).encode(),
    )


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ([DONE], 0, ""),
        (
            [
                problem("TOO_MANY_REQUESTS", 429, Retry_After="0"),
                problem("SERVER_STOPPING", 503, Retry_After="0"),
                DONE,
            ],
            0,
            "",
        ),
        ([(200, {"Content-Type": "text/html"}, b"<html>")], 1, "something else than the output of a command"),
        ([(404, {"Content-Type": "text/html"}, b"<html>")], 1, "answered 404 and is no server of realms"),
        ([(302, {"Location": "/elsewhere"}, b"")], 1, "answered 302 and is no server of realms"),
        ([(500, {}, b"broken")], 1, "answered 500 and is no server of realms"),
        ([problem("SERVER_FAILED", 500)], 1, "It is SERVER_FAILED. [SERVER_FAILED]"),
        ([problem("RIGHT_MISSING", 403)], 1, "It is RIGHT_MISSING. [RIGHT_MISSING]"),
        ([problem("REQUEST_TOO_LARGE", 413)], 2, "It is REQUEST_TOO_LARGE. [REQUEST_TOO_LARGE]"),
        ([problem("OF_ANOTHER_VERSION", 400)], 1, "It is OF_ANOTHER_VERSION."),
        ([(200, LINES, b'["out","cut"]\n'), DONE], 0, ""),
    ],
)
def test_each_failure_is_one_sentence_with_its_exit_code(tmp_path: Path, script: Any, code: int, words: str) -> None:
    with answering(*script) as (port, _):
        said = ended(tmp_path, ["inbox", "--server", f"http://127.0.0.1:{port}", "--realm", "main"], {})
    assert said.code == code, said.err
    assert said.out == ("here\n" if code == 0 else "")
    assert words in said.err
    assert said.err.count("\n") == (0 if code == 0 else 1)


def test_servers_that_are_none_are_told_apart(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        def greet() -> None:
            for _ in range(2):
                connection, _ = taken.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"220 mail.example.com ESMTP\r\n")

        greeter = threading.Thread(target=greet)
        greeter.start()
        for _ in range(2):
            said = ended(tmp_path, ["inbox", "--server", f"http://127.0.0.1:{port}", "--realm", "main"], {})
            assert "answered something else than HTTP" in said.err
        greeter.join()
    said = ended(tmp_path, ["inbox", "--server", f"http://127.0.0.1:{port}"], {})
    assert (said.code, "No server answers at" in said.err) == (1, True)
    said = ended(tmp_path, ["inbox", "--server", "unix:gone.sock"], {})
    assert (said.code, "No server answers at unix:gone.sock" in said.err) == (1, True)


def test_a_server_with_an_unknown_certificate_gets_no_token(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    with answering(DONE, tls=context) as (port, kind):
        address = f"https://127.0.0.1:{port}"
        words = ["inbox", "--server", address, "--realm", "main"]
        said = ended(tmp_path, words, {"WORLDCTL_TOKEN": "wp1_a_b"})
        assert (said.code, "There is no safe connection" in said.err) == (1, True)
        assert kind.seen == []
        said = ended(tmp_path, words, {"SSL_CERT_FILE": str(tmp_path / "server.pem")})
        assert (said.code, said.out) == (0, "here\n"), said.err


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that signs itself, and its key."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "server.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return folder / "server.pem", folder / "server.key"


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com",
        "http://10.0.0.1:80",
        "ftp://127.0.0.1",
        "127.0.0.1:80",
        "",
        "unix:",
        "https://",
        "https://a b",
        "http://127.0.0.1.example.com",
        "http://localhost@example.com",
        "http://u:p@127.0.0.1",
        "http://127.0.0.1:x",
    ],
)
def test_no_token_goes_to_another_machine_without_tls(tmp_path: Path, address: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_server_address(address)
    assert caught.value.code == "INVALID_ADDRESS"
    if address:
        said = ended(tmp_path, ["inbox", f"--server={address}"], {"WORLDCTL_TOKEN": "wp1_a_b"})
        assert (said.code, "INVALID_ADDRESS" in said.err) == (2, True)


def test_addresses_on_this_machine_and_over_tls_are_taken_apart() -> None:
    assert read_server_address("http://127.0.0.1:80").is_local
    assert read_server_address("http://[::1]:8437").host == "::1"
    assert read_server_address("unix:/run/x.sock").path == "/run/x.sock"
    far = read_server_address("https://realms.example.com/shop/")
    assert (far.is_local, far.port, far.path, far.base_url) == (False, 443, "/shop", "https://realms.example.com/shop")


def started(served: Served, *words: str, **more: Any) -> subprocess.Popen[str]:
    environ = environment() | {"WORLDCTL_TOKEN": served.place.tokens["bot"]}
    command = [*COMMAND, "--server", served.url, "--realm", "main", *words]
    return subprocess.Popen(
        command, cwd=served.place.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def test_new_events_are_printed_as_they_are_committed_until_interrupted(served: Served) -> None:
    with served.place.realm() as realm:
        size = realm.log.head().size
    process = started(served, "log", "--follow", "--json")
    assert process.stdout is not None
    shown = [json.loads(process.stdout.readline())["position"] for _ in range(size)]
    assert served.submit("kid").status_code == 200
    shown += [json.loads(process.stdout.readline())["position"] for _ in range(3)]
    assert shown == list(range(1, size + 4))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")


def test_following_ends_with_the_limit_and_with_the_right(served: Served) -> None:
    said = asked(served, "--server", served.url, "--realm=main", "log", "--follow", "--limit=3", "--json")
    assert (said.code, len(said.lines)) == (0, 3)


def test_an_interrupted_command_ends_with_130_and_what_it_did_stays(served: Served) -> None:
    body = ["submit", "order.place", "--input", '{"item": "tea"}', "--scope", "orders", "--wait", "50", "--json"]
    process = started(served, *body)
    with served.client("ann") as client:
        until(lambda: client.get(f"{PATH}/inbox").json()["inbox"], running=process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "error: Interrupted; what was done before is in the log. [INTERRUPTED]\n")


def test_a_reader_that_goes_away_ends_the_command_with_141(served: Served) -> None:
    reading, writing = os.pipe()
    environ = environment() | {"WORLDCTL_TOKEN": served.place.tokens["all"]}
    command = [*COMMAND, "--server", served.url, "--realm", "main", "log", "--follow", "--json"]
    process = subprocess.Popen(command, cwd=served.place.folder, env=environ, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert os.read(reading, 1)
    os.close(reading)
    assert served.submit("kid").status_code == 200
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (141, b"")
