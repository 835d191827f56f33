"""Runs the examples: commands in this process, and requests to the application of a server without a connection."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
from fastapi import FastAPI

from tests.cli.inside import ended
from tests.recordings.realms import ROOT, RecordedRealm, recorded_time
from tests.recordings.transcript import Answers, Example
from worldprotocol.api.config import ServerConfig
from worldprotocol.cli.commands.admin.serve import _opened
from worldprotocol.cli.registry import COMMANDS
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.server.app import create_app
from worldprotocol.server.service import Service

HEADERS = ("content-type", "etag", "link", "allow", "retry-after", "location", "content-range")
"""Headers that are recorded."""

VARIABLES = {"COLUMNS": "110", "TZ": "UTC"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command that can be run, with its words."""
    for name, entry in COMMANDS.items():
        yield from _leaves(name, entry.load())


def _leaves(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from _leaves(f"{words} {name}", one)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield words, command


def shown_help() -> str:
    """Return the help of every command; the options that all of them have are in that of the program alone."""
    options = {" ".join(one.split()) for one in _entries(_help([]))}
    parts = []
    for words in ([], *(name.split() for name, _ in commands())):
        entries = _entries(_help(words))
        own = [one for one in entries if not words or " ".join(one.split()) not in options]
        parts.append(f"## {' '.join(['worldctl', *words])}\n{''.join(own)}")
    return "\n".join(parts)


def _help(words: list[str]) -> str:
    said = ended(Path(), [*words, "--help"], "", VARIABLES)
    assert (said.code, said.err) == (0, ""), (words, said)
    return said.out


def _entries(text: str) -> list[str]:
    """Return a help in parts, of which each option is one."""
    return re.split(r"^(?=  -)", text, flags=re.MULTILINE)


def performed(example: Example, realm: RecordedRealm, folder: Path, app: FastAPI | None = None) -> str:
    """Run an example on a copy of its realm and return its text.

    Args:
        example: the example.
        realm: the realm that is copied.
        folder: a new folder for the copy.
        app: takes requests; None runs commands.
    """
    shutil.copytree(realm.folder, folder)
    answers = Answers(example, realm.text, {str(folder): "<folder>", sys.executable: "<python>", str(ROOT): "<source>"})
    with recorded_time():
        if app is None:
            _run(answers, folder)
        else:
            asyncio.run(_request(answers, realm, folder, app))
    return answers.text


def _run(answers: Answers, folder: Path) -> None:
    for line in answers.requests():
        words = shlex.split(line)
        given = ""
        if "<<<" in words:
            given = words[words.index("<<<") + 1].replace("\\n", "\n") + "\n"
            words = words[: words.index("<<<")]
        said = ended(folder, words, given, VARIABLES)
        answers.add("|", said.out)
        answers.add("!", said.err)
        if said.code:
            answers.add("=", str(said.code))


def new_app() -> FastAPI:
    """Return the application, which serves no realm before an example."""
    return create_app(Service.of(ServerConfig(), []))


async def _request(answers: Answers, realm: RecordedRealm, folder: Path, app: FastAPI) -> None:
    name, context = answers.example.realm, CommandContext()
    context.quiet = True
    with ExitStack() as opened, chdir(folder):
        service = Service.of(ServerConfig(), [_opened(context, name, str(folder / "world.toml"), opened)])
        app.state.service = service
        await service.start()
        try:
            for line in answers.requests():
                actor, method, path, *rest = shlex.split(line)
                body = rest.pop() if rest and rest[-1].startswith("{") else ""
                headers = dict(one.split(": ", 1) for one in rest)
                headers |= {"Authorization": f"Bearer {realm.tokens[actor]}"} if actor in realm.tokens else {}
                status, told, text = await _answer(app, method, path.replace("~", f"/v1/realms/{name}"), headers, body)
                answers.add("=", str(status))
                for header in HEADERS:
                    if header in told:
                        answers.add(":", f"{header}: {told[header]}")
                answers.add("|", text)
        finally:
            await service.stop()


async def _answer(
    app: FastAPI, method: str, path: str, headers: dict[str, str], body: str
) -> tuple[int, dict[str, str], str]:
    """Send a request and return status, headers and body; a stream of the log ends after its first events."""
    place, _, query = path.partition("?")
    given = {"host": "recorded", **({"content-type": "application/json"} if body else {}), **headers}
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": method, "path": unquote(place), "raw_path": place.encode(), "query_string": query.encode(),
        "headers": [(key.lower().encode(), value.encode()) for key, value in given.items()],
        "client": ("127.0.0.1", 1), "server": ("recorded", 80), "state": {},
    }  # fmt: skip
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": body.encode(), "more_body": False})
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if place.endswith("/log/stream") and b"id:" in message.get("body", b""):
            incoming.put_nowait({"type": "http.disconnect"})

    await app(scope, incoming.get, send)
    told = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], told, _shown(told.get("content-type", ""), content)


def _shown(kind: str, content: bytes) -> str:
    """Return a body as it is recorded: bytes by their digest, and metrics, which differ each time, by their names."""
    if kind.startswith("application/octet-stream"):
        return f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()[:16]}"
    text = content.decode()
    if kind.startswith("text/event-stream"):  # how often a job tells its progress differs
        return "".join(one for one in re.split(r"(?<=\n\n)|(?<=\r\n\r\n)", text) if "event: progress" not in one)
    text = re.sub(r'"\]\n\["out","', "", text)  # a command's output, which comes in parts
    if "version=0.0.4" in kind or kind.startswith("application/openmetrics"):
        return "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    return text


def shown_description(app: FastAPI) -> str:
    """Return the description of the API as JSON, a line for each operation and for each schema."""
    document = deepcopy(app.openapi())
    lines = [(path, method, one) for path, methods in document.pop("paths").items() for method, one in methods.items()]
    lines += [("schema", name, one) for name, one in document["components"].pop("schemas").items()]
    return "\n".join(json.dumps(one) for one in [document, *lines]) + "\n"
