"""Documentation is a test: examples run, links lead somewhere, commands and options exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from worldprotocol.cli.options import global_options
from worldprotocol.cli.table import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def example() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = PYTHON.search(text)
    assert found is not None
    return found.group(1)


@pytest.mark.requirement("IC-action", "CARD-policy")
def test_the_readme_s_example_is_short_and_prints_what_it_says(tmp_path: Path) -> None:
    lines = example().splitlines()
    assert len(lines) <= 40
    script = tmp_path / "example.py"
    script.write_text(example(), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    expected = [line.partition("  # ")[2].partition(":")[0] for line in lines if "print(" in line]
    assert run.stdout.split() == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    common = {name for option in global_options() for name in option.opts}
    for shown in re.findall(r"worldctl ([^`|\n]+)", page.read_text(encoding="utf-8")):
        words = shown.split("#")[0].split()
        while words and words[0] in common:
            words = words[2:]
        if not words or not re.fullmatch(r"[a-z-]+", words[0].rstrip(".,;")):
            continue
        name = words[0].rstrip(".,;")
        assert name in COMMANDS, f"{page.name}: worldctl {shown}"
        command = COMMANDS[name].load()
        if isinstance(command, click.Group) and len(words) > 1 and words[1] in command.commands:
            command = command.commands[words[1]]
        known = common | {opt for parameter in command.params for opt in parameter.opts}
        for word in words[1:]:
            if re.fullmatch(r"--[a-z-]+", word):
                assert word in known, f"{page.name}: worldctl {shown} has no {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_documentation_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name == "README.md" and page.parent == ROOT:
        return  # runs in a process of its own above
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(PYTHON.findall(page.read_text(encoding="utf-8"))):
        source = tmp_path / f"block_{number}.py"
        source.write_text(block, encoding="utf-8")
        exec(compile(block, str(source), "exec"), {"__name__": f"block_{number}"})
