"""No argument makes a server read or write a file of its own, import code, start a process, or wait without bound."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.served import PATH, Served, founded, serving
from tests.support.patience import PATIENCE_S, until
from worldprotocol.server.commands.command_table import REMOTE

pytestmark = pytest.mark.slow

SECRET = "c0ffee-that-nobody-may-read"
CODE = """
from pathlib import Path
Path(__file__).with_suffix(".imported").touch()
policy = house = None
"""


@dataclass(frozen=True)
class Prey:
    """A server, and files beside its log that no request may reach."""

    served: Served
    folder: Path

    def files(self) -> dict[str, bytes]:
        """Return all files that are not the log's own, with their contents."""
        kept = {"world.db", "world.db-wal", "world.db-shm", "server.log"}
        found = [one for one in self.folder.rglob("*") if one.is_file() and "__pycache__" not in one.parts]
        return {one.name: one.read_bytes() for one in found if one.name not in kept}


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prey]:
    """Return a server in whose folder there are a secret, code, and a configuration."""
    folder = tmp_path_factory.mktemp("prey")
    limits = "max_wait_s = 1\nrequests_per_second = 100000\nburst = 100000"
    place = founded(folder, server=limits)
    (folder / "secret.json").write_text(json.dumps({"secret": SECRET, "type": SECRET, "actor": "all"}))
    (folder / "secret.toml").write_text(f"name = '{SECRET}'\n")
    (folder / "secret.pem").write_text(f"-----BEGIN PUBLIC KEY-----\n{SECRET}\n-----END PUBLIC KEY-----\n")
    (folder / "secret").write_text(f"9:{'ab' * 32}\n{SECRET}\n")
    (folder / "evil.py").write_text(CODE)
    (folder / "other.toml").write_text("log = 'other.db'\ndomain = 'evil.py:policy'\n")
    with serving(place) as running:
        assert running.submit("kid").status_code == 200
        yield Prey(running, folder)


def sent(client: httpx.Client, words: list[str], **more: Any) -> tuple[int, str]:
    """Run a command; return the status of the answer and all of its text."""
    answer = client.post(f"{PATH}/commands", json={"arguments": words, **more})
    assert answer.status_code < 500, (words, answer.text)
    return answer.status_code, answer.text


def values(folder: Path) -> list[str]:
    """Return what names a file, code or a process in some way."""
    names = ["secret.json", "secret.toml", "secret.pem", "secret", "evil.py", "other.toml"]
    paths = [*names, str(folder / "secret.json"), str(folder / "secret.toml"), "/etc/passwd"]
    references = [f"{folder}/evil.py:policy", "evil:policy"]
    return [*paths, "@secret.json", f"@{folder}/secret", *references, "-", "|id", "file:///etc/passwd"]


def test_no_option_and_no_argument_reaches_a_file_or_code_of_the_server(prey: Prey) -> None:
    """Every value in every option and argument that the table permits, and in those that it does not."""
    before = prey.files()
    with prey.served.client("all") as client:
        for path, row in REMOTE.items():
            for value in values(prey.folder):
                slots = [[f"{one.name}={value}"] for one in row.options if one.form not in ("", "pair", "caller")]
                slots += [["--between", value, value]] if row.option("--between") else []
                slots += [["--", *[value] * max(1, len(row.arguments))]]
                for slot in slots:
                    text = sent(client, [*path.split(), *slot])[1]
                    assert SECRET not in text, (path, slot)
                    assert "root:" not in text, (path, slot)
    assert prey.files() == before
    assert (prey.folder / "secret.json").exists()


@pytest.mark.parametrize(
    "line",
    [
        "log --config other.toml",
        "log --log other.db",
        "log --trust",
        "log --paranoid",
        "log --server http://127.0.0.1:1",
        "log --token-file secret",
        "log --local",
        "inbox --help",
        "--help",
        "--version",
        "--config other.toml log",
        "recheck --jobs 9",
        "recheck --runs 2 --vary locale",
        "policy backtest --with house --jobs 9",
        "bisect -- touch made",
        "bisect touch made",
        "diff --logs world.db other.db",
        "report -o made.html",
        "report --out made.html --force",
        "export made.jsonl",
        "prove 5 -o made.json",
        "prove 5 --key secret",
        "prove 5 --origin example.com/other",
        "checkpoint --key secret",
        "checkpoint -o made",
        "checkpoint keygen made -o made",
        "whatif --domain evil.py:policy",
        "whatif -o made.db",
        "keys new made.pem",
        "submit order.place --execute",
        "decide none approve --execute",
        "settle --no-execute",
        "submit order.place --wait 1e9",
        "submit order.place --wait inf",
        "submit order.place --wait nan",
        "lease acquire FILE:/a --wait 99",
        "policy show evil.py:policy",
        "policy ask --actor kid --intent - --policy secret.toml",
        "policy adopt secret.toml",
        "run -- touch made",
        "init --domain evil.py:policy",
        "workspace show",
        "backups list",
        "import secret made.db",
        "salvage world.db -o made",
        "serve",
        "worker",
        "dev",
        "doctor --rebuild",
        "simulate",
        "klis sign secret.json --key secret",
        "policy test secret",
        "policy lint evil.py:policy",
    ],
)
def test_what_needs_files_code_or_processes_is_refused_with_a_reason(prey: Prey, line: str) -> None:
    before = prey.files()
    with prey.served.client("all") as client:
        status, text = sent(client, line.split())
    assert (status, json.loads(text)["code"]) == (400, "NOT_OVER_SERVER")
    assert json.loads(text)["detail"]
    assert prey.files() == before


def test_a_name_reads_the_content_that_the_request_has_under_it_and_nothing_else(prey: Prey) -> None:
    body = base64.b64encode(json.dumps({"item": "tea", "number": "sent"}).encode()).decode()
    words = ["submit", "order.place", "--input", "@secret.json", "--json"]
    with prey.served.client("kid") as client:
        text = sent(client, words, files={"secret.json": body})[1]
        assert '\\"status\\":\\"completed\\"' in text
        assert "cannot be read: No such file" in sent(client, words, files={"other.json": body})[1]
        assert sent(client, words, files={"secret.json": "%%%"})[0] == 400


def test_the_environment_of_the_server_names_no_log_and_no_server(prey: Prey, tmp_path: Path) -> None:
    place = founded(tmp_path)
    variables = {"WORLDCTL_SERVER": "http://127.0.0.1:1"}
    with serving(place, **variables) as running, running.client("all") as client:
        answer = client.post(f"{PATH}/commands", json={"arguments": ["log", "--json"]})
        assert json.loads(answer.text.splitlines()[-1]) == ["exit", 0]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"arguments": "inbox"},
        {"arguments": [1]},
        {"arguments": ["inbox"], "by": "ann"},
        {"arguments": ["inbox"], "terminal": {"columns": 80, "lines": 24, "LD_PRELOAD": "x"}},
        {"arguments": ["inbox"], "terminal": {"columns": 0, "lines": 24}},
        {"arguments": ["inbox"], "files": {"a": "\u00e4"}},
        {"arguments": ["inbox"], "files": {"a": 1}},
        {"arguments": ["inbox"] * 20_000},
    ],
)
def test_a_body_of_another_form_is_refused(prey: Prey, body: Any) -> None:
    with prey.served.client("all") as client:
        answer = client.post(f"{PATH}/commands", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_VALUE")


def test_words_that_are_no_words_are_answered(prey: Prey) -> None:
    odd = ["\x00", "--", "--=", "-", "-x", "=", "\ufeff", "a" * 100_000, "--json=1", "\u202e", ""]
    with prey.served.client("all") as client:
        for word in odd:
            for words in ([word], ["show", word], ["log", word], ["log", "--actor", word], ["lease", word]):
                sent(client, words)


def test_a_waiting_command_ends_once_its_caller_is_gone(tmp_path: Path) -> None:
    """Callers that follow the log and leave hold no place: many more of them than may run at once."""
    with serving(founded(tmp_path, server="threads = 4")) as running:
        for _ in range(20):
            with (
                running.client("aud") as client,
                client.stream("POST", f"{PATH}/commands", json={"arguments": ["log", "--follow"]}) as answer,
            ):
                assert answer.status_code in (200, 429)
                if answer.status_code == 200:
                    assert next(answer.iter_lines())
        with running.client("aud") as client:
            body = {"arguments": ["log", "--limit", "1"]}
            until(lambda: client.post(f"{PATH}/commands", json=body).status_code == 200)


def test_many_commands_at_once_are_limited_and_leave_other_requests_alone(tmp_path: Path) -> None:
    """Two commands that wait for people use up what one actor may run; following the log uses up nothing."""
    waiting = {"arguments": ["submit", "order.place", '--input={"item": "tea"}', "--scope=orders", "--wait=60"]}
    following = {"arguments": ["log", "--follow"]}
    place = founded(tmp_path, server="threads = 4")
    with serving(place) as running, running.client("bot") as client, ExitStack() as opened:
        for body in (following, following, waiting, waiting):
            for _ in range(int(PATIENCE_S * 20)):  # one that follows counts until it has read what there is
                answer = opened.enter_context(client.stream("POST", f"{PATH}/commands", json=body))
                if answer.status_code == 200:
                    break
                time.sleep(0.05)
            assert answer.status_code == 200
        refused = client.post(f"{PATH}/commands", json={"arguments": ["log"]})
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_REQUESTS")
        assert refused.headers["Retry-After"]
        assert client.get(f"{PATH}/branches").status_code == 200
        with running.client("aud") as other:
            assert other.post(f"{PATH}/commands", json={"arguments": ["log", "--limit", "1"]}).status_code == 200
