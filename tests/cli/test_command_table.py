"""The command line as such: every command is there, helps, is loaded lazily, and starts quickly."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

import worldprotocol
from tests.cli.realm import ROOT, CliRealm
from world.errors import DamagedLogError, DivergenceError, LogBusyError, RefusedError, StorageFullError
from worldprotocol.api.lookup.id_lookup import the_one
from worldprotocol.cli.program import root, run
from worldprotocol.cli.registry import COMMANDS
from worldprotocol.cli.support import input_reading as reading
from worldprotocol.cli.support import output
from worldprotocol.cli.support.exit_codes import exit_code_of


def leaves(command):
    """Return a command, or those of a group, at any depth."""
    return [leaf for one in command.commands.values() for leaf in leaves(one)] if is_group(command) else [command]


def is_group(command):
    return isinstance(command, click.Group)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says_and_takes_the_global_options(name, capsys):
    command = COMMANDS[name].load()
    assert command.name == name
    for one in leaves(command):
        flags = {flag for parameter in one.params for flag in parameter.opts}
        assert {"--log", "--config", "--json", "--paranoid", "--quiet"} <= flags
        assert one.help
    assert run([name, "--help"]) == 0
    assert f"Usage: worldctl {name}" in capsys.readouterr().out


def test_help_imports_nothing_of_the_engine():
    code = (
        "import sys; from worldprotocol.cli.program import run; run(['--help']);"
        "print([name for name in sys.modules if name.split('.')[0] in"
        " ('world', 'authority', 'host', 'projections', 'pydantic', 'sqlalchemy', 'rich', 'asyncio')],"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


MOST_MODULES_OF_HELP = 100


def test_help_imports_few_modules():
    """Imports are what the start of a command costs; ``python -m bench help`` measures how long it takes."""
    code = "import sys; before = set(sys.modules); from worldprotocol.cli.program import run; run(['--help'])"
    count = f"{code}; print(len(set(sys.modules) - before), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", count], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stderr) <= MOST_MODULES_OF_HELP


def test_a_mistyped_command_gets_a_suggestion(capsys):
    assert run(["verifi"]) == 2
    assert "Did you mean 'verify'?" in capsys.readouterr().err


def test_a_file_behind_an_at_is_a_file_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("-").write_text('{"file": 1}', encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"stdin": 1}')))
    assert reading.read_object("@-", what="--input") == {"file": 1}
    assert reading.read_object("-", what="--input") == {"stdin": 1}


def test_the_version_is_printed(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("worldctl")


def test_global_options_are_heard_before_and_after_the_command(tmp_path):
    realm = CliRealm(tmp_path)
    for arguments in (["--json", "inbox", "--log", "x.db"], ["--log", "x.db", "inbox", "--json"]):
        assert realm(*arguments, code=2).json["error"]["code"] == "LOG_NOT_FOUND"
    assert "x.db" in realm("inbox", "--json", WORLD_LOG="x.db", code=2).json["error"]["message"]
    assert "y.toml" in realm("inbox", "--json", WORLD_CONFIG="y.toml", code=2).json["error"]["message"]
    assert realm("settle", "--json", code=2).json["error"]["code"] in ("LOG_NOT_FOUND", "NO_CONFIG")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError("INVALID_VALUE", "x"), 2),
        (RefusedError("MALFORMED_JSON", "x"), 2),
        (RefusedError("LOG_NOT_FOUND", "x"), 2),
        (RefusedError("STALE_BASE", "x"), 1),
        (LogBusyError("LOG_BUSY", "x"), 1),
        (StorageFullError("STORAGE_FULL", "x"), 1),
        (DivergenceError("INVALID_VALUE", "x"), 1),
        (DamagedLogError("INVALID_EVENT", "x"), 3),
    ],
)
def test_an_error_has_the_exit_code_of_its_kind(error, code):
    assert exit_code_of(error) == code


def test_a_bug_is_not_hidden(monkeypatch):
    def broken(*arguments, **settings):
        raise ZeroDivisionError

    monkeypatch.setattr(root, "invoke", broken)
    with pytest.raises(ZeroDivisionError):
        run(["inbox"])


def test_what_the_system_refuses_is_one_sentence(monkeypatch, capsys):
    def refused(*arguments, **settings):
        raise PermissionError(13, "Permission denied", "world.toml")

    monkeypatch.setattr(root, "invoke", refused)
    assert run(["inbox", "--json"]) == 1
    told = capsys.readouterr()
    assert told.err == "error: world.toml: Permission denied. [SYSTEM]\n"
    assert json.loads(told.out)["error"]["code"] == "SYSTEM"


def test_a_prefix_names_the_one_or_lists_the_candidates():
    assert the_one("ab", ["abc", "bcd"], what="world") == "abc"
    assert the_one("abc", ["abc", "abcd"], what="world") == "abc"
    assert the_one("x", ["abc"], what="world") == "x"
    assert the_one("", ["abc"], what="world") == ""
    with pytest.raises(RefusedError) as caught:
        the_one("a", ["abc", "acd"], what="world")
    assert caught.value.code == "AMBIGUOUS"
    assert [one["id"] for one in caught.value.details["candidates"]] == ["abc", "acd"]


def test_a_line_that_is_too_long_is_passed_over_and_the_next_one_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 16)
    given = tmp_path / "given.jsonl"
    given.write_bytes(b"1\n" + b"x" * 100 + b"\n\n" + b"y" * 16 + b"\n" + b"z" * 17)
    lines = list(reading.read_lines(str(given)))
    assert [number for number, _ in lines] == [1, 2, 4, 5]
    assert [line if isinstance(line, bytes) else line.code for _, line in lines] == [
        b"1\n", "LINE_TOO_LONG", b"y" * 16 + b"\n", "LINE_TOO_LONG",
    ]  # fmt: skip


def test_a_folder_is_no_file_to_read(tmp_path):
    with pytest.raises(RefusedError) as caught:
        list(reading.read_lines(str(tmp_path)))
    assert caught.value.code == "FILE_UNREADABLE"


def test_tables_are_tabs_and_json_is_one_line_where_output_is_piped(capsys):
    printer = output.Printer(as_json=False, quiet=True)
    printer.table(("a", "b"), [(1, None), ("x\ty", "z\n")])
    printer.table(("a",), [], empty="nothing here")
    printer.document({"a": {"b": 2**70}, "c": (1,)})
    told = capsys.readouterr()
    assert told.out == 'a\tb\n1\t\nx\\ty\tz\\n\n{"a": {"b": 1180591620717411303424}, "c": [1]}\n'
    assert told.err == ""


def test_tables_are_drawn_on_a_terminal_and_markup_of_actors_is_text(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    printer = output.Printer(as_json=False, quiet=False)
    printer.terminal = True
    printer.table(("what",), [("[red]x[/red]",)])
    assert "[red]x[/red]" in screen.getvalue()
    assert "─" in screen.getvalue()


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    with output.progress("Working") as silent:
        silent(1, 2)
    assert capsys.readouterr().err == ""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with output.progress("Working") as shown:
        shown(1, 2)
    assert "Working" in screen.getvalue()
    hidden = Screen()
    monkeypatch.setattr(sys, "stderr", hidden)
    with output.progress("Working", shown=False) as quiet:
        quiet(1, 2)
    assert hidden.getvalue() == ""


def test_doctor_says_what_is_no_log(tmp_path):
    (tmp_path / "junk.db").write_bytes(b"\x17" * 8192)
    told = CliRealm(tmp_path)("doctor", "--log", "junk.db", "--json", code=1).json
    assert not told["ok"]
    assert {one["check"] for one in told["checks"] if one["ok"]} == {
        "python",
        "sqlite",
        "confinement",
        "tracer",
        "workspace",
    }


def test_public_names_are_these_and_all_are_there():
    assert worldprotocol.__all__ == [
        "ActionContext", "ActionSteps", "Approve", "AsyncRealm", "Case", "DamagedLogError", "DivergenceError", "Domain",
        "EffectFailure", "EffectResult", "EffectType", "Escalate", "IntentBody", "IntentInstance", "IntentScope",
        "LogBusyError",
        "Narrow", "NoIntent", "Patch", "Policy", "ProjectionOutcome", "ProjectionRequest", "Realm", "RealmDirectory",
        "RefusedError", "Reject", "RunOptions", "ScopeViolationError", "Select", "SourceEvent", "StorageFullError",
        "WaitTimeoutError", "Worker", "WorldProtocolError", "effect", "external", "handler", "merge", "projection",
        "rule", "set_", "unset",
    ]  # fmt: skip
    for name in worldprotocol.__all__:
        assert getattr(worldprotocol, name) is not None
    assert set(worldprotocol.__all__) <= set(dir(worldprotocol))
    with pytest.raises(AttributeError, match="no attribute 'nowhere'"):
        worldprotocol.nowhere  # noqa: B018


def test_importing_the_package_imports_nothing_else():
    code = "import sys, worldprotocol; print(json.dumps(sorted(sys.modules)))".replace("import sys", "import sys, json")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "worldprotocol" in loaded
    assert not {name for name in loaded if Path(name.partition(".")[0]).name in ("world", "pydantic", "host")}
