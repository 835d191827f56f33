"""What commands, requests and the description of the API answer is what is recorded, byte by byte.

``python -m tests.recordings`` records the answers again, where a change is wanted.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from msgspec import convert, to_builtins
from starlette.routing import compile_path

from tests.recordings.__main__ import COMMANDS, DESCRIPTION, HELP, REQUESTS
from tests.recordings.performing import commands, new_app, performed, shown_description, shown_help
from tests.recordings.realms import LOGS, RecordedRealm, prepared
from tests.recordings.transcript import Example, read
from worldprotocol.operations import explanations, inbox, policies, proposals, realms, runs, worlds
from worldprotocol.operations.acting import calls, effects
from worldprotocol.server.operation_table import OPERATIONS, Operation

ACTED = [one for file in COMMANDS for one in read(file)]
REQUESTED = read(REQUESTS)
WHOLE = (calls, effects, explanations, inbox, policies, proposals, realms, runs, worlds)
"""Modules of operations that make answers of JSON."""

ONLY = "# only "
"""How the note of an example begins that has no answer but a refusal, or no refusal."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RecordedRealm]:
    """Return the realms that are copied."""
    return {name: prepared(name, tmp_path_factory.mktemp(name)) for name in LOGS}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """Return the application that takes the requests."""
    return new_app()


def same(expected: str, found: str, of: str) -> None:
    """Fail with the difference and with what records it."""
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "recorded", "found", lineterm="")
    if expected != found:
        wanted = f"If this is wanted: .venv/bin/python -m tests.recordings '{of}'"
        pytest.fail("\n".join([*lines, wanted]), pytrace=False)


def converted(wire: Any, kind: Any) -> Any:
    """Check that ``msgspec.convert`` loses no member: those that the type does not have are left out."""
    made = convert(wire, kind)
    assert to_builtins(made) == to_builtins(wire)
    return made


def named(examples: list[Example]) -> list[str]:
    return [f"{one.name} @{one.realm}" for one in examples]


@pytest.mark.parametrize("example", ACTED, ids=named(ACTED))
def test_a_command_prints_what_is_recorded(example: Example, copied: dict[str, RecordedRealm], tmp_path: Path) -> None:
    found = performed(example, copied[example.realm], tmp_path / "realm")
    same(example.text, found, f"{example.name} @")


@pytest.mark.parametrize("example", REQUESTED, ids=named(REQUESTED))
def test_a_request_is_answered_as_recorded(
    example: Example, copied: dict[str, RecordedRealm], app: FastAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in WHOLE:
        monkeypatch.setattr(module, "convert", converted)
    found = performed(example, copied[example.realm], tmp_path / "realm", app)
    same(example.text, found, f"{example.name} @")


def test_the_help_of_every_command_is_as_recorded() -> None:
    same(HELP.read_text(encoding="utf-8"), shown_help(), "")


def test_the_description_of_the_api_is_as_recorded(app: FastAPI) -> None:
    same(DESCRIPTION.read_text(encoding="utf-8"), shown_description(app), "")


def test_every_command_has_a_table_a_json_form_and_a_refusal() -> None:
    texts = {name: "".join(one.text for one in ACTED if one.name == name) for name, _ in commands()}
    assert {one.name for one in ACTED} <= texts.keys()
    lacking = {name: sorted(lacks_of_command(name, text)) for name, text in texts.items()}
    assert "\n".join(f"{name}: {', '.join(lacks)}" for name, lacks in lacking.items() if lacks) == ""


def lacks_of_command(name: str, text: str) -> set[str]:
    """Return what the examples of a command do not show."""
    answers = [part.split("\n") for part in text.split("\n$ ")[1:]]
    answers = [one for one in answers if one[0].startswith(name)]
    well = [one for one in answers if not any(line.startswith("! error: ") for line in one)]
    lacks = set() if any(line.startswith("= ") for one in answers for line in one) else {"a refusal"}
    if ONLY not in text:
        lacks |= set() if any("--json" in one[0] for one in well) else {"--json"}
        lacks |= set() if any("--json" not in one[0] for one in well) else {"an answer"}
    return lacks


def test_every_operation_has_an_answer_and_a_refusal() -> None:
    texts = {name: "".join(one.text for one in REQUESTED if one.name == name) for name in OPERATIONS}
    assert {one.name for one in REQUESTED} <= texts.keys()
    lacking = {name: sorted(lacks_of_operation(OPERATIONS[name], text)) for name, text in texts.items()}
    assert "\n".join(f"{name}: {', '.join(lacks)}" for name, lacks in lacking.items() if lacks) == ""


def lacks_of_operation(operation: Operation, text: str) -> set[str]:
    """Return what the examples of an operation do not show."""
    pattern = compile_path(operation.route)[0]
    statuses = set()
    for part in text.split("\n$ ")[1:]:
        asked, answered, *_ = part.split("\n")
        _, method, path, *_ = asked.split(" ")
        place = path.partition("?")[0].replace("~", "/v1/realms/main")
        if method == operation.method and pattern.match(place):
            statuses.add(int(answered.removeprefix("= ")) < 400)
    lacks = set() if False in statuses or operation.is_public else {"a refusal"}
    return lacks if True in statuses or ONLY in text else lacks | {"an answer"}
