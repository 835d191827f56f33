"""Documentation is a test: examples run, links resolve, commands, codes and names exist, tables are complete."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import click
import pytest

import worldprotocol
from host.observation.operations import RuntimePaths
from tests.documents import (
    ARCHITECTURE,
    GENERATED,
    PACKAGES,
    PAGES,
    ROOT,
    WRITTEN,
    blocks,
    codes_in_source,
    command_lines,
    mentions,
    product_modules,
    prose,
    public_names,
)
from tests.support.syntax import nodes
from tests.support.tables import for_each
from world import errors
from world.core.expressions.expression import KINDS
from world.core.flows.flow import KINDS as FLOW_KINDS
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.events.codec import TOPICS
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.state.ports import Case
from worldprotocol.api.config import Config, WorkspaceConfig
from worldprotocol.api.host import Hosting
from worldprotocol.cli import program as command_line
from worldprotocol.cli.commands.run import run as governing
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.cli.support.exit_codes import exit_code_of

README = ROOT / "README.md"
GROUPS_AND_FILES = (
    ".db",
    ".toml",
    ".rules",
    ".effects",
    ".projections",
    ".resource_types",
    ".storage",
    ".bindings",
    ".views",
    ".commands",
)
DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
ADR_SECTIONS = ["Context", "Decision", "Consequences", "Alternatives considered"]
EXAMPLE = "example: tests run this block"
RUN = [page for page in WRITTEN if any(block.language in ("python", "console") for block in blocks(page))]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def first_cells(text: str) -> list[str]:
    """Return the texts between backticks in the first cells of the tables."""
    return [
        name
        for row in re.findall(r"^\| ([^|]*`[^|]*) \|", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    ]


def section(text: str, heading: str) -> str:
    """Return a page's text from a heading to the next one of the same depth."""
    depth = heading.split(" ", maxsplit=1)[0]
    return re.split(rf"^{depth} ", text.partition(f"\n{heading}\n")[2], flags=re.MULTILINE)[0]


@pytest.mark.requirement("IC-action", "CARD-policy")
def test_the_readme_has_one_example_of_at_most_forty_lines() -> None:
    [example] = [block for block in blocks(README) if block.language == "python"]
    assert example.mark == EXAMPLE
    assert len(example.text.splitlines()) <= 40
    assert re.search(r"print\(.*\)  # ", example.text)


@pytest.mark.requirement("CARD-policy", "CARD-replay", "CARD-audit")
@pytest.mark.parametrize(
    "shown",
    [pytest.param(shown, marks=() if shown == README else pytest.mark.slow, id=shown.name) for shown in RUN],
)
def test_what_a_page_shows_runs_and_prints_what_it_says(shown: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WORLD_")}
    environment["CI"] = "true"  # Hypothesis then limits no time of the examples that the page shows
    ran = subprocess.run(
        [sys.executable, "-m", "tests.run_page", str(shown)],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@for_each("shown", PAGES, ids=lambda shown: shown.name)
def test_links_lead_somewhere(shown: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", shown.read_text(encoding="utf-8")):
        other = (shown.parent / target) if target else shown
        assert other.exists(), f"{shown.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}, anchor


@for_each("shown", PAGES, ids=lambda shown: shown.name)
def test_a_page_has_each_section_once(shown: Path) -> None:
    headings = re.findall(r"^## (.*)$", shown.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) == len(set(headings))


def found(line: str) -> tuple[click.Context, click.Command, list[str]]:
    """Return the context and the command that a command line names, and its arguments; fails where there is none."""
    _, *words = shlex.split(line, comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in ("|", ">", "<", "<<SQL", "&&")), None)]
    valued = {name for one in command_line.root.params for name in one.opts if not getattr(one, "is_flag", False)}
    start = 0
    while start < len(words) and words[start].startswith("-"):
        start += 2 if words[start] in valued else 1
    command: click.Command = command_line.root
    arguments = words[start:]
    context = command.make_context("worldctl", [*words[:start], "log"], obj=CommandContext())
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        inner = command.get_command(context, arguments[0])
        assert inner is not None, f"there is no {line!r}"
        command, arguments = inner, arguments[1:]
    return context, command, arguments


@for_each("shown", WRITTEN, ids=lambda shown: shown.name)
def test_every_command_line_in_a_block_parses(shown: Path) -> None:
    for line in command_lines(shown):
        context, command, arguments = found(line)
        try:
            command.make_context(command.name, arguments, parent=context)
        except click.UsageError as wrong:
            pytest.fail(f"{shown.name}: {line}: {wrong.format_message()}")


@for_each("shown", WRITTEN, ids=lambda shown: shown.name)
def test_commands_and_options_that_the_text_mentions_exist(shown: Path) -> None:
    for line in mentions(shown):
        if not line.startswith("worldctl COMMAND"):
            _, command, arguments = found(line)
            known = {name for one in command.params for name in one.opts}
            assert {word for word in arguments if word.startswith("--")} <= known, f"{shown.name}: {line}"


def exists(dotted: str) -> bool:
    """Tell whether a dotted name leads to a module, or to something in one."""
    first, *rest = dotted.split(".")
    found: object = importlib.import_module(first)
    for at, name in enumerate(rest, 2):
        if not hasattr(found, name):
            if importlib.util.find_spec(".".join(dotted.split(".")[:at])) is None:
                return False
            importlib.import_module(".".join(dotted.split(".")[:at]))
        found = getattr(found, name)
    return True


@for_each("shown", WRITTEN, ids=lambda shown: shown.name)
def test_modules_and_names_that_the_text_mentions_exist(shown: Path) -> None:
    packages = "|".join(PACKAGES)
    topics = {*TOPICS, *(topic.partition(".")[0] for topic in TOPICS)}
    for dotted in re.findall(rf"`((?:{packages})(?:\.\w+)+)", prose(shown)):
        if dotted in topics or dotted.endswith(GROUPS_AND_FILES):
            continue  # a topic of the log, a file, a group of entry points
        assert exists(dotted), f"{shown.name}: {dotted}"
    for name in re.findall(r"`Realm\.(\w+)", prose(shown)):
        assert hasattr(worldprotocol.Realm, name), f"{shown.name}: Realm.{name}"


def test_the_facade_is_documented_name_by_name() -> None:
    facade = section(page("developer.md"), "## The façade")
    told = {name for name in re.findall(r"`(\w+)`", facade) if name in worldprotocol.__all__}
    assert told == set(worldprotocol.__all__)
    acting = {name for name in vars(worldprotocol.Realm) if not name.startswith("_")}
    assert acting - set(re.findall(r"Realm\.(\w+)", facade)) <= {"archive", "close", "log", "parts"}


def test_what_the_host_offers_is_documented_name_by_name() -> None:
    [row] = re.findall(r"^\| govern \| (.*) \|$", section(page("developer.md"), "## The façade"), re.MULTILINE)
    offered = {name for name in vars(Hosting) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", row)) == offered


def test_every_error_code_of_the_source_is_documented_once_and_no_other() -> None:
    told = Counter(re.findall(r"^\| `([A-Z0-9_-]+)` \|", page("errors.md"), re.MULTILINE))
    source = codes_in_source()
    assert {code: source[code] for code in source.keys() - told.keys()} == {}
    assert told.keys() - source.keys() == set()
    assert [code for code, times in told.items() if times > 1] == []


@pytest.mark.parametrize("tree", [page("errors.md"), errors.__doc__])
def test_the_tree_of_errors_names_each_once_and_under_its_parent(tree: str) -> None:
    found, above = [], [WorldProtocolError.__name__]
    for indent, name in re.findall(r"^ *((?:\|   )*)(?:\|--|`--) (\w+)", tree, re.MULTILINE):
        depth = len(indent) // 4 + 1
        above[depth:] = [name]
        found.append((above[depth - 1], name))
    assert sorted(found) == sorted(_below(WorldProtocolError))


def _below(kind: type[WorldProtocolError]) -> list[tuple[str, str]]:
    """Return the errors of the engine below one, each with its parent."""
    mine = [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]
    return [pair for one in mine for pair in ((kind.__name__, one.__name__), *_below(one))]


def test_the_exit_codes_of_errors_are_as_documented() -> None:
    rows = re.findall(r"^\| `([A-Z0-9_-]+)` \| (\d+) \|", page("errors.md"), re.MULTILINE)
    assert len(rows) > 100
    fixed = {"USAGE": command_line.USAGE, "INTERRUPTED": command_line.INTERRUPTED, "SYSTEM": command_line.FINDINGS}
    for code, told in rows:
        kind = DamagedLogError if told == "3" else RefusedError
        assert int(told) == fixed.get(code, exit_code_of(kind(code, ""))), code


def test_the_exit_codes_of_the_command_line_are_documented() -> None:
    codes = [
        int(code) for code in re.findall(r"^\| (\d+) \|", section(page("operator.md"), "## Exit codes"), re.MULTILINE)
    ]
    names = ("CLEAN", "FINDINGS", "USAGE", "DAMAGED", "WAITING", "HELD", "INTERRUPTED", "NOBODY_READS")
    assert codes == [getattr(command_line, name) for name in names]


def test_the_exit_codes_of_governed_commands_are_documented() -> None:
    told = re.findall(r"^\| ([\d, ]+) \|", section(page("host.md"), "### How it ends"), re.MULTILINE)
    codes = [int(code) for cell in told for code in cell.split(",")]
    assert codes == sorted({*governing.CODES.values(), governing.VIOLATED, governing.LOST, governing.REFUSED})


def test_what_may_be_read_without_being_declared_is_documented() -> None:
    told = set(re.findall(r"`(/[\w/]+)`", section(page("host.md"), "## What may be read without being declared")))
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    system = {os.fsdecode(path) for path in RuntimePaths.standard().read} - {os.path.realpath(path) for path in python}
    assert system <= told


LIMIT_BOUNDS = {name: one for name, one in dataclasses.asdict(Limits()).items() if name != "judge_invalid_input"}
"""The limits of the section; whether invalid inputs are judged is a key of its own."""


@pytest.mark.parametrize(
    ("heading", "defaults"),
    [("## Limits", LIMIT_BOUNDS), ("### Settings", dataclasses.asdict(KlisSettings()))],
    ids=["limits", "klis"],
)
def test_limits_and_settings_are_documented_with_their_defaults(heading: str, defaults: dict[str, object]) -> None:
    rows = re.findall(r'^\| `(\w+)` \| ("?\w+"?) \|', section(page("operator.md"), heading), re.MULTILINE)
    plain = {name: value for name, value in defaults.items() if not isinstance(value, dict)}
    assert {name: json.loads(told) for name, told in rows} == plain
    assert len(rows) == len(plain)


def test_the_whole_configuration_is_documented() -> None:
    [shown] = [block.text for block in blocks(ROOT / "docs" / "operator.md") if block.language == "toml"]
    named = re.findall(r"^(\w+) =", shown.partition("\n[")[0], re.MULTILINE)
    tables = re.findall(r"^\[(\w+)\]", shown, re.MULTILINE)
    assert {*named, *tables} == set(Config.model_fields) - {"folder"}
    told = tomllib.loads(shown)
    Config(**told).chosen_limits()
    given = WorkspaceConfig(**told["workspace"])
    assert told["workspace"].keys() == WorkspaceConfig.model_fields.keys()
    assert given.model_copy(update={"unwatched": [], "read": []}) == WorkspaceConfig()


def test_every_topic_is_explained_to_auditors() -> None:
    assert set(first_cells(section(page("auditor.md"), "## What happened, when and why"))) == set(TOPICS)


def test_every_field_of_a_case_is_explained_to_policy_authors() -> None:
    told = first_cells(section(page("policy-author.md"), "## What a rule sees"))
    assert {name.removeprefix("case.") for name in told if name.startswith("case.")} == {
        field.name for field in dataclasses.fields(Case)
    }


def test_every_kind_of_expression_and_flow_is_listed_for_developers() -> None:
    portable = section(page("developer.md"), "## Portable domains")
    listed = Counter(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| \w+ \| (.*) \|$", portable, re.MULTILINE))))
    assert listed == Counter(KINDS)
    assert set(re.findall(r"`(\w+)`", portable)) >= FLOW_KINDS


@for_each(("shown", "name"), GENERATED, ids=lambda value: getattr(value, "name", value))
def test_what_pages_take_from_the_code_is_up_to_date(shown: Path, name: str) -> None:
    """``python -m tests.documents`` regenerates it."""
    text = shown.read_text(encoding="utf-8")
    part = text.partition(f"<!-- {name}: begin -->\n")[2].partition(f"<!-- {name}: end -->\n")[0]
    assert part.strip() == GENERATED[shown, name]().strip()


def test_the_architecture_can_be_read_in_one_sitting() -> None:
    assert len(ARCHITECTURE.read_text(encoding="utf-8").split()) <= 3000


def test_the_architecture_has_every_package_of_the_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    inside = {container: one["layers"] for one in contracts for container in one.get("containers", ())}
    for container, layers in inside.items():
        rows = re.findall(
            r"^\| \d+\*? \| `(\w+)` \|", section(page("architecture.md"), f"### {container}"), re.MULTILINE
        )
        assert sorted(rows) == sorted(name for layer in layers for name in re.split(r" [|:] ", layer))


def test_no_class_name_is_defined_twice_in_the_product() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in product_modules():
        for node in nodes(tree, ast.ClassDef):
            places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_public_name_is_in_the_glossary_or_in_the_reference() -> None:
    text = "".join(prose(ROOT / "docs" / name) for name in ("glossary.md", "developer.md", "reference/api.md"))
    documented = set(re.findall(r"`(?:[\w.]+\.)?(\w+)(?:\(.*\))?`", text))
    assert {f"{package}.{name}" for package, name in public_names() if name not in documented} == set()
    assert {"worldprotocol", "projections", "authority", "host"} <= {package for package, _ in public_names()}


def test_the_glossary_defines_each_term_once_and_says_where_it_is() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", page("glossary.md"), re.MULTILINE)
    rows = [row for row in rows if row[0] != "term"]
    terms = [term for name, _, _ in rows for term in name.split(", ")]
    assert len(terms) > 80
    assert [term for term, times in Counter(terms).items() if times > 1] == []
    assert [name for name, meaning, where in rows if not (meaning.endswith(".") and re.search(r"`[^`]+`", where))] == []


@for_each("record", DECISIONS, ids=lambda record: record.stem)
def test_a_decision_record_has_its_sections_and_is_in_the_index(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert re.match(rf"# {int(record.name[:4])}\. \w", text)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ADR_SECTIONS
    assert all(len(section(text, f"## {name}").split()) >= 20 for name in ADR_SECTIONS)
    assert len(text.split()) <= 600
    assert f"]({record.name})" in page("adr/README.md")


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(record.name[:4]) for record in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    assert len(DECISIONS) >= 10


PATH_IN_TEXT = re.compile(r"`([\w./]+/[\w.]*|\w+\.(?:toml|md|py))`")


def test_every_path_on_the_page_for_contributors_exists() -> None:
    named = PATH_IN_TEXT.findall(page("contributing.md"))
    assert len(set(named)) >= 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def change_sections() -> dict[str, str]:
    """Return the text of each of the twelve changes by its title."""
    parts = re.split(r"^### (.+)$", section(page("contributing.md"), "## Twelve changes"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_there_are_twelve_changes() -> None:
    assert len(change_sections()) == 12


@pytest.mark.parametrize("change", change_sections())
def test_the_names_in_a_change_occur_in_the_files_that_it_names(change: str) -> None:
    text = change_sections()[change]
    files = [ROOT / name for name in PATH_IN_TEXT.findall(text) if not name.startswith(("tests/", "docs/"))]
    sources = [one for path in files for one in ([path] if path.is_file() else path.rglob("*.py"))]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert [name for name in re.findall(r"`@?([A-Za-z_]\w*)`", text) if name not in words] == []
    groups = set(re.findall(r"`(worldprotocol\.\w+)`", text))
    assert groups <= entry_point_groups(), "no module reads this group of entry points"


def entry_point_groups() -> set[str]:
    """Return the groups of entry points that the product reads."""
    pattern = re.compile(r'^(?:GROUP|ENTRY_POINTS): Final = "(worldprotocol\.\w+)"$', re.MULTILINE)
    return {
        group
        for package in ("world", "projections", "authority", "host", "worldprotocol")
        for path in (ROOT / package).rglob("*.py")
        for group in pattern.findall(path.read_text(encoding="utf-8"))
    }


def test_the_page_for_developers_lists_every_group_of_entry_points() -> None:
    listed = set(re.findall(r"^\| `(worldprotocol\.\w+)` \|", page("developer.md"), re.MULTILINE))
    assert listed == entry_point_groups()


def test_each_version_in_the_changelog_has_each_heading_once() -> None:
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    found = [re.findall(r"^### (.+)$", version, flags=re.MULTILINE) for version in versions]
    assert found
    assert [name for names in found for name, count in Counter(names).items() if count > 1] == []


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\(([\w/-]+\.md)", page("README.md")))
    docs = ROOT / "docs"
    records = {record.relative_to(docs).as_posix() for record in DECISIONS}  # linked by their own index
    assert linked == {shown.relative_to(docs).as_posix() for shown in docs.rglob("*.md")} - {"README.md"} - records
