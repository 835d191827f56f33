"""The house style is a test: sizes, names, documentation, and what no file of this project may hold."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.syntax import last_name, nodes, syntax_tree

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("world", "projections", "authority", "host", "worldprotocol", "conformance")
MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 450
MAX_TEST_MODULE_LINES = 600
TABLES = {"world/error_codes.py"}  # a row each
MAX_FOLDER_FILES = 20

# Patterns are written so that this file does not hold what it looks for.
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")
SILENCED = re.compile(r"\b(?:pytest|mark)\.(?:skip|xfail|importorskip)|unittest\.skip|# type: ignor[e](?!\[)")
MACHINE_PATH = re.compile(r"/(?<![\w:.*/\-]/)(?:work|home|root|Users)/|:\\Users\\")
REGISTRY = re.compile(r"\b(?:pypi|npmjs|yarnpkg|crates)\.(?:org|com|io)/|pythonhosted\.org|index[-]url|find[-]links")

# A test that closes the loop in which a task waits, because that is what it is about.
LEAVING_TASKS = {"tests/klis/test_leases_api.py"}

# world.clock is the only reader of wall clock and chance: everybody else is handed a Clock and an IdSource.
CLOCK_AND_CHANCE = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "uuid.uuid1",
    "uuid.uuid4",
    "random.random",
    "random.randint",
    "random.choice",
    "random.uniform",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def project_files() -> tuple[Path, ...]:
    """Return the project's own files: what git does not ignore or, without git, all that was not made."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        paths = (ROOT / name for name in listed.split("\0") if name)
    else:
        paths = (path for path in ROOT.rglob("*") if not _is_made(path.relative_to(ROOT)))
    return tuple(sorted(path for path in paths if path.is_file()))


def _is_made(path: Path) -> bool:
    hidden = any(part.startswith(".") and part not in (".ci", ".gitignore") for part in path.parts)
    return hidden or any(part in ("build", "dist", "__pycache__") for part in path.parts)


@cache
def modules() -> dict[str, ast.Module]:
    """Return every Python file of the project, parsed, by its path from the root."""
    python = (path for path in project_files() if path.suffix == ".py")
    return {str(path.relative_to(ROOT)): syntax_tree(path) for path in python}


def package_modules() -> dict[str, ast.Module]:
    """Return the modules of the product, and of the programs for other implementations."""
    return {path: tree for path, tree in modules().items() if path.split("/")[0] in PACKAGES}


def lines_matching(pattern: re.Pattern[str], *suffixes: str) -> list[str]:
    """Return "path:line: text" wherever the pattern occurs in a file, of these suffixes if any are given."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in project_files()
        if (not suffixes or path.suffix in suffixes) and pattern.search(text_of(path))
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


@cache
def text_of(path: Path) -> str:
    """Return the text of a file of the project, whatever bytes it holds."""
    return path.read_bytes().decode("utf-8", "replace")


def functions(tree: ast.Module) -> list[Function]:
    """Return every function and method of a module, nested ones included."""
    return [*nodes(tree, ast.FunctionDef), *nodes(tree, ast.AsyncFunctionDef)]


def assignments(tree: ast.Module) -> list[ast.Assign | ast.AnnAssign]:
    """Return every assignment of a module, with a type or without."""
    return [*nodes(tree, ast.Assign), *nodes(tree, ast.AnnAssign)]


def test_no_function_is_longer_than_a_page():
    long = [
        f"{path}:{function.lineno} {function.name}: {lines} lines"
        for path, tree in modules().items()
        for function in functions(tree)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert long == []


def code_lines(tree: ast.AST, text: str) -> int:
    """Return how many lines of a module are neither blank nor a comment nor in a docstring."""
    lines = text.splitlines()
    counted = {number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            counted -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(counted)


def test_no_module_holds_more_than_one_idea_fits_into():
    sizes = {path: code_lines(tree, text_of(ROOT / path)) for path, tree in modules().items()}
    product = {path: lines for path, lines in sizes.items() if path.startswith(PACKAGES) and path not in TABLES}
    assert {path: lines for path, lines in product.items() if lines > MAX_MODULE_LINES} == {}
    assert {path: lines for path, lines in sizes.items() if lines > MAX_TEST_MODULE_LINES} == {}


def test_no_folder_of_the_product_has_more_files_than_one_can_survey():
    files = (path.relative_to(ROOT) for path in project_files())
    folders = Counter(path.parent for path in files if path.parts[0] in PACKAGES)
    assert {folder: count for folder, count in folders.items() if count > MAX_FOLDER_FILES} == {}


def test_nothing_is_left_unfinished():
    assert lines_matching(UNFINISHED, ".py", ".toml", ".md", ".sh", ".html", ".js", ".css", ".yaml", ".yml") == []


def test_no_test_is_skipped_and_no_type_error_is_silenced_without_its_code():
    assert lines_matching(SILENCED, ".py") == []


def test_no_file_names_a_place_on_somebodys_machine():
    assert lines_matching(MACHINE_PATH) == []


def test_no_file_names_a_package_registry():
    assert lines_matching(REGISTRY) == []


def test_constraints_hold_names_and_versions_only():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed_and_what_it_is(package):
    assert (ROOT / package / "py.typed").is_file()
    assert ast.get_docstring(modules()[f"{package}/__init__.py"])


def test_every_module_and_every_public_class_and_function_is_documented():
    undocumented = [
        f"{path}: {getattr(node, 'name', 'the module')}"
        for path, tree in package_modules().items()
        for node in (tree, *public_definitions(tree))
        if not ast.get_docstring(node)
    ]
    assert undocumented == []


def public_definitions(tree: ast.Module) -> Iterator[ast.ClassDef | Function]:
    """Return the public classes and functions of a module, and the public methods of those classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            yield node
            methods = node.body if isinstance(node, ast.ClassDef) else []
            yield from (m for m in methods if isinstance(m, Function) and _needs_docstring(m))


def _needs_docstring(method: Function) -> bool:
    # An override, an overload and a property's setter are documented where they were first declared.
    marks = {ast.unparse(decorator).split(".")[-1] for decorator in method.decorator_list}
    return not method.name.startswith("_") and not marks & {"override", "overload", "setter", "deleter"}


def test_every_topic_is_given_to_one_kind_of_event_only():
    topics = Counter(
        node.value.value
        for tree in package_modules().values()
        for node in assignments(tree)
        if isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and any(
            isinstance(target, ast.Name) and target.id == "TOPIC"
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        )
    )
    assert [topic for topic, times in topics.items() if times > 1] == []


def test_only_the_clock_reads_the_wall_clock_and_takes_chances():
    readers = [
        f"{path}:{node.lineno} {name}"
        for path, tree in package_modules().items()
        if path != "world/clock.py"
        for node in nodes(tree, ast.Attribute)
        if (name := f"{last_name(node.value)}.{node.attr}") in CLOCK_AND_CHANCE
    ]
    assert readers == []


def test_every_test_of_a_module_has_a_name_of_its_own():
    twice = [
        f"{path}: {name}"
        for path, tree in modules().items()
        if path.startswith("tests/")
        for name, times in Counter(node.name for node in tree.body if isinstance(node, Function)).items()
        if times > 1
    ]
    assert twice == []


def test_no_test_leaves_a_task_unawaited():
    """A task that is left is collected at any time, also while pytest parses source (see tests/conftest.py)."""
    left = [
        f"{path}:{node.lineno} {ast.unparse(node.func)}"
        for path, tree in modules().items()
        if path.startswith("tests/")
        for node in nodes(tree, ast.Call)
        if isinstance(node.func, ast.Attribute)
        if node.func.attr in ("create_task", "ensure_future", "gather")
        and ast.unparse(node.func.value) in ("asyncio", "loop")
        if node.func.attr == "gather" or not any(one.value is node for one in nodes(tree, ast.Await))
    ]
    assert [one for one in left if one.partition(":")[0] not in LEAVING_TASKS] == []


def test_the_tests_are_no_package():
    # With one, tests/world would be found before world.
    packages = [path for path in modules() if path.startswith("tests/") and path.endswith("__init__.py")]
    assert packages == ["tests/golden/__init__.py"]  # provides former names to the realm of the recorded logs


def test_every_error_of_the_product_has_a_code_of_the_enumeration():
    errors = {
        "RefusedError",
        "DamagedLogError",
        "DivergenceError",
        "StorageFullError",
        "LogBusyError",
        "WaitTimeoutError",
    }
    literal = []
    for path, tree in modules().items():
        if not path.startswith(PACKAGES):
            continue
        for node in nodes(tree, ast.Call):
            if last_name(node.func) in errors and node.args:
                words = [one for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)]
                literal += [f"{path}:{one.lineno}" for one in words if str(one.value).isupper()]
    assert literal == []
