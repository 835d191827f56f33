"""The identity of a rule covers what it does, and neither layout, comments, places nor the order of functions."""

from __future__ import annotations

import ast
import copy
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from authority import AllOf, Approve, Policy, rule
from authority.policies.cedar import policy_from_cedar
from authority.policies.policy_diff import differences
from authority.policies.policy_file import policy_from_text
from world.model.identity import policy_hash

pytestmark = pytest.mark.slow

HEAD = """
from worldprotocol import Approve, Reject, rule
from .helpers import limit_of
"""
BLOCKS = (
    "SMALL = 5",
    "FACTORS = {'tea': 2, 'cake': [1, 4]}",
    '''def worth(case):
    """Return the worth."""
    return case.intent.body.input["count"] * FACTORS.get("tea", 1) + 1''',
    """class Guard:
    def __init__(self, most):
        self.most = most

    def allows(self, case):
        return worth(case) <= self.most and not case.earlier_attempts""",
    """def at_most(most):
    guard = Guard(most)

    @rule("bounded")
    def bounded(case):
        if guard.allows(case) or case.actor.kind == "human":
            return Approve("small enough")
        return Reject("too much")

    return bounded""",
    """@rule
def opening(case):
    # Within the hours.
    return None if limit_of(case) > SMALL else Reject("closed")""",
    "def unrelated():\n    return 99",
)
HELPERS = """
HOURS = 8


def limit_of(case):
    return case.submitted_at // 3600 % 24 - HOURS
"""
NUMBERS = itertools.count()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("rule_package_"):
            del sys.modules[name]


def package(folder: Path, blocks: list[str], helpers: str = HELPERS, *, name: str = "rules") -> ModuleType:
    """Write a package of rules under a new name, and import the module of the rules."""
    top = f"rule_package_{next(NUMBERS)}"
    place = folder / top
    place.mkdir()
    (place / "__init__.py").write_text("")
    (place / "helpers.py").write_text(helpers)
    policy = "from worldprotocol import Policy\nhouse = Policy('house', [at_most(20), opening])\n"
    (place / f"{name}.py").write_text("\n\n".join([HEAD, *blocks, policy]))
    importlib.invalidate_caches()
    return importlib.import_module(f"{top}.{name}")


def house(folder: Path, blocks: list[str], helpers: str = HELPERS, **where: str) -> Policy:
    policy: Policy = package(folder, blocks, helpers, **where).house
    return policy


def written_differently(block: str, words: str) -> str:
    """Return a block with other comments, docstrings, quotes, spaces and line breaks."""
    tree = ast.parse(block)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:]
            node.body.insert(0, ast.Expr(ast.Constant(words)))
    lines = ast.unparse(ast.fix_missing_locations(tree)).split("\n")
    return "\n".join(
        f"{line}  # {words}" if line.strip() and "'''" not in line and '"""' not in line else line for line in lines
    )


@st.composite
def layouts(draw: st.DrawFn) -> list[str]:
    words = draw(st.text("abc xyz", min_size=1, max_size=8))
    data, functions = list(BLOCKS[:2]), draw(st.permutations(BLOCKS[2:]))
    shown = [written_differently(one, words) if draw(st.booleans()) else one for one in (*data, *functions)]
    return [f"# {words}\n\n\n{one}\n" if draw(st.booleans()) else one for one in shown]


@pytest.mark.requirement("CARD-policy")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(layouts(), st.sampled_from(["rules", "policies"]))
def test_layout_comments_order_and_places_keep_the_hash(folder: Path, blocks: list[str], name: str) -> None:
    assert house(folder, blocks, name=name).hash == house(folder, list(BLOCKS)).hash


_OTHER: dict[type[ast.AST], type[Any]] = {
    ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.And: ast.Or, ast.Or: ast.And, ast.Mult: ast.Add,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv,
}  # fmt: skip


def changes(source: str) -> list[str]:
    """Return the source with each of its constants, operators and attributes changed, one at a time."""
    found = []
    for at, node in enumerate(ast.walk(ast.parse(source))):
        tree = copy.deepcopy(ast.parse(source))
        other = list(ast.walk(tree))[at]
        if isinstance(other, ast.Constant) and isinstance(other.value, int):
            other.value += 1
        elif isinstance(other, ast.Constant) and not source.partition(str(other.value))[0].endswith('"""'):
            other.value = f"{other.value!s}!"
        elif isinstance(other, ast.Attribute):
            other.attr += "x"
        elif isinstance(other, ast.BoolOp | ast.BinOp) and type(other.op) in _OTHER:
            other.op = _OTHER[type(other.op)]()
        elif isinstance(other, ast.Compare) and type(other.ops[0]) in _OTHER:
            other.ops[0] = _OTHER[type(other.ops[0])]()
        else:
            continue
        assert isinstance(node, ast.AST)
        found.append(ast.unparse(tree))
    return found


REACHED = [
    (at, changed) for at, block in enumerate(BLOCKS[:6]) for changed in changes(block) if "'bounded!'" not in changed
]


@pytest.mark.requirement("CARD-policy")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(REACHED))
def test_each_change_of_reached_code_changes_the_hash(folder: Path, change: tuple[int, str]) -> None:
    at, changed = change
    blocks = [*BLOCKS[:at], changed, *BLOCKS[at + 1 :]]
    assert house(folder, blocks).hash != house(folder, list(BLOCKS)).hash, changed


@pytest.mark.requirement("CARD-policy")
def test_a_helper_in_another_module_counts_for_the_rules_that_reach_it(folder: Path) -> None:
    before = house(folder, list(BLOCKS)).description
    after = house(folder, list(BLOCKS), HELPERS.replace("HOURS = 8", "HOURS = 9")).description
    pairs = zip(before["rules"], after["rules"], strict=True)
    assert [(old["rule"], old["identity"] == new["identity"]) for old, new in pairs] == [
        ("bounded", True),
        ("opening", False),
    ]
    assert [(one["kind"], one["rule"]) for one in differences(before, after) if one["kind"] == "changed"] == [
        ("changed", "opening")
    ]


@pytest.mark.requirement("CARD-policy")
def test_code_that_no_rule_reaches_does_not_count(folder: Path) -> None:
    blocks = [*BLOCKS[:-1], "def unrelated():\n    return 100", "def new():\n    return unrelated()"]
    policy = house(folder, blocks)
    assert policy.hash == house(folder, list(BLOCKS)).hash
    assert all(one["identity"].startswith("tree-1:") for one in policy.description["rules"])


@rule
def everything(case: Any) -> Any:
    return Approve()


@pytest.mark.requirement("CARD-policy")
def test_a_composed_rule_is_identified_by_its_parts_and_not_by_code_of_the_engine(folder: Path) -> None:
    parts = (
        package(folder, list(BLOCKS)).opening,
        package(folder, [b.replace("SMALL = 5", "SMALL = 6") for b in BLOCKS]).opening,
    )
    same = package(folder, [*BLOCKS[:2], *reversed(BLOCKS[2:])]).opening
    first, other, again = (Policy("p", [AllOf("both", (everything, part))]) for part in (*parts, same))
    assert first.hash == again.hash != other.hash
    assert "world-protocol" in first.description["distributions"]


@pytest.mark.requirement("CARD-policy")
def test_the_order_the_names_and_the_combination_of_rules_count() -> None:
    def named(name: str) -> Any:
        return rule(name)(lambda case: Approve())

    one, two = named("one"), named("two")
    hashes = {
        Policy("p", [one, two]).hash,
        Policy("p", [two, one]).hash,
        Policy("p", [one]).hash,
        Policy("p", [one, named("three")]).hash,
        Policy("q", [one, two]).hash,
        Policy("p", [one, two], version="2").hash,
    }
    assert len(hashes) == 6


@pytest.mark.requirement("CARD-policy")
def test_conditions_of_files_are_compared_token_by_token() -> None:
    text = 'name = "p"\n[[rules]]\nid = "a"\nverdict = "approve"\nwhen = "intent.input.count<=2 // few"\n'
    spaced = "# why\n\n" + text.replace("count<=2 // few", "count  <= 2")
    assert policy_from_text(spaced, "rules.toml").hash == policy_from_text(text, "p.toml").hash
    assert policy_from_text(text.replace("<=2", "<=3"), "p.toml").hash != policy_from_text(text, "p.toml").hash
    cedar = '@id("a") permit(principal, action, resource) when { context.nowMs < 5 };'
    laid_out = "// why\n" + cedar.replace(" when", "\n  when // then\n ")
    assert policy_from_cedar(laid_out, "p.cedar").hash == policy_from_cedar(cedar, "p.cedar").hash
    assert policy_from_cedar(cedar.replace("< 5", "< 6"), "p.cedar").hash != policy_from_cedar(cedar, "p.cedar").hash


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_an_earlier_description_is_compared_by_its_own_rule() -> None:
    policy = Policy("house", [everything], version="1")
    kept = ("identity", "distributions", "hash")
    earlier = {name: part for name, part in policy.description.items() if name not in kept}
    earlier["rules"] = [{name: part for name, part in one.items() if name != "identity"} for one in earlier["rules"]]
    as_recorded = policy.hashed_like(earlier)
    assert as_recorded.hash == policy_hash(earlier) != policy.hash
    assert as_recorded.description == {**earlier, "hash": as_recorded.hash}
    assert policy.hashed_like(policy.description) is policy
