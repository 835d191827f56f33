"""Rules: what may be one, how it is named, and what it is made of."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import pytest

from authority import AllOf, AnyOf, Approve, Policy, PythonRule, Reject, RuleSource, rule, source_of
from authority.policies.rules import check_rule
from authority.policies.source_hash import MAX_PARAMETERS
from tests.authority.cases import make_case
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes


@rule
def small_changes(case):
    """Approve what is small.

    More about it.
    """
    return Approve("small") if case.actor.kind == "agent" else None


def at_most(limit, *, word="items"):
    @rule("at-most")
    def check(case):
        return Reject(f"more than {limit} {word}") if limit < 3 else None

    return check


@dataclass(frozen=True)
class OnlyBranch:
    """A rule that is an object."""

    name: str
    branch: str

    def __call__(self, case):
        return None if case.branch == self.branch else Reject(f"only on {self.branch}")


class Made:
    """A class with a name, whose instances are no opinions."""

    name = "made"

    def __init__(self, case):
        pass


def test_a_decorated_function_is_a_rule_named_after_it_and_can_be_called_as_before():
    assert isinstance(small_changes, PythonRule)
    assert small_changes.name == "small_changes"
    assert small_changes(make_case()) == Approve("small")
    assert small_changes.description == "Approve what is small."


def test_a_rule_can_be_given_a_name():
    assert at_most(5).name == "at-most"


@pytest.mark.parametrize("candidate", [lambda case: None, 7, "rule", None, OnlyBranch, Made, [small_changes]])
def test_what_has_no_name_or_cannot_be_asked_is_no_rule(candidate):
    with pytest.raises(RefusedError) as refused:
        check_rule(candidate)
    assert (refused.value.code, "decorate the function" in refused.value.message) == ("INVALID_RULE", True)


@pytest.mark.parametrize("name", ["", "two words", ".x", "a" * 200, "line\nbreak"])
def test_a_rule_needs_a_proper_name(name):
    with pytest.raises(RefusedError) as refused:
        rule(name)(lambda case: None)
    assert refused.value.code == "INVALID_RULE"


def test_a_lambda_needs_a_name():
    with pytest.raises(RefusedError):
        rule(lambda case: None)
    assert rule("ok")(lambda case: None).name == "ok"


def test_rules_that_would_answer_later_are_refused():
    async def later(case) -> Any:
        return None

    def stepwise(case) -> Any:
        yield None

    class Later:
        name = "later"

        async def __call__(self, case):
            return None

    functions: list[Any] = [later, stepwise]
    for candidate in (*(PythonRule("r", function) for function in functions), Later()):
        with pytest.raises(RefusedError, match="plain function"):
            check_rule(candidate)


@pytest.mark.parametrize("function", [lambda: None, lambda one, two: None, lambda *, case: None])
def test_a_rule_takes_one_argument(function):
    with pytest.raises(RefusedError, match="one argument"):
        rule("wrong")(function)


@pytest.mark.requirement("CARD-policy")
def test_a_source_says_where_a_rule_stands_and_hashes_its_text():
    source = source_of(small_changes)
    assert source.language == "python"
    assert source.module == __name__
    assert source.qualname == "small_changes"
    line = small_changes.function.__code__.co_firstlineno
    assert source.line == line
    assert re.fullmatch("[0-9a-f]{64}", source.source_hash)
    assert re.fullmatch("[0-9a-f]{64}", source.module_hash or "")
    assert source.label == f"{__name__}:{line}"
    assert source == source_of(small_changes)


def test_rules_of_one_text_and_different_values_are_different():
    assert source_of(at_most(5)) == source_of(at_most(5))
    assert source_of(at_most(5)).source_hash == source_of(at_most(9)).source_hash
    assert source_of(at_most(5)) != source_of(at_most(9))
    assert source_of(at_most(5)).parameters == {"limit": 5, "word": "items"}
    assert Policy("p", [at_most(5)]).hash != Policy("p", [at_most(9)]).hash
    assert Policy("p", [at_most(5)]).hash == Policy("p", [at_most(5)]).hash


def test_a_rule_that_is_an_object_is_described_by_its_class_and_fields():
    source = source_of(OnlyBranch("branch", "main"))
    assert source.qualname == "OnlyBranch"
    assert source.parameters == {"name": "branch", "branch": "main"}
    assert Policy("p", [OnlyBranch("branch", "main")]).hash != Policy("p", [OnlyBranch("branch", "dev")]).hash


@pytest.mark.parametrize("whole", [AllOf, AnyOf])
def test_rules_made_of_rules_are_described_with_all_their_parts(whole):
    five, nine = (whole("w", (at_most(5), small_changes)), whole("w", (at_most(9), small_changes)))
    assert source_of(five) != source_of(nine)
    assert [part["qualname"] for part in source_of(five).parameters["rules"]] == [
        "at_most.<locals>.check",
        "small_changes",
    ]


def test_defaults_partials_and_bound_methods_are_part_of_a_rule():
    def compare(threshold, case):
        return Reject() if threshold else None

    class Judge:
        def __init__(self, mild):
            self.mild = mild

        def __call__(self, case):
            return None

    def made(function):
        def check(case, inner=function):
            return inner(case)

        return source_of(rule("r")(check))

    assert made(functools.partial(compare, 1)) != made(functools.partial(compare, 2))
    assert made(functools.partial(compare, 1)) == made(functools.partial(compare, 1))
    assert made(Judge(True).__call__) != made(Judge(False).__call__)


def test_values_of_every_kind_can_be_described_and_are_the_same_each_time():
    pattern, names, number = re.compile("a+", re.IGNORECASE), {"b", "a"}, float("nan")
    odd = {1: b"x", "k": (1, 2.5), None: OnlyBranch}

    @rule
    def holds(case):
        return Reject() if (pattern, names, number, odd, len, re, object) else None

    source = source_of(holds)
    assert source == source_of(holds)
    assert canonical_bytes(source.to_wire())
    assert source.parameters["names"] == ["a", "b"]


def test_a_rule_that_holds_itself_can_be_described():
    @rule
    def itself(case):
        return itself(case) if case.branch == "never" else None

    assert source_of(itself) == source_of(itself)


def test_of_large_values_only_the_hash_is_kept():
    table = list(range(MAX_PARAMETERS))

    @rule
    def looks_up(case):
        return Reject() if case.branch in table else None

    assert set(source_of(looks_up).parameters) == {"digest"}


def test_a_rule_without_a_text_is_told_apart_by_its_compiled_form():
    def compiled(text):
        space: dict = {}
        exec(compile(text, "<typed>", "exec"), space)
        return rule("typed")(space["f"])

    one = source_of(compiled("def f(case):\n return None if case.branch in {'a', 'b'} else 1"))
    same = source_of(compiled("def f(case):\n return None if case.branch in {'b', 'a'} else 1"))
    other = source_of(compiled("def f(case):\n return None if case.branch in {'a', 'c'} else 1"))
    assert one.language == "python-bytecode"
    assert one.line is None
    assert one == same
    assert one != other


@pytest.mark.requirement("CARD-policy")
def test_a_rule_in_another_language_tells_its_own_source():
    class Expression:
        name = "expression"
        source = RuleSource("cel", "house.yaml", "rules[0]", 3, "0" * 64)
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, case):
            return Approve()

    policy = Policy("house", [Expression()])
    assert len({policy, Policy("house", policy.rules)}) == 1
    assert policy.description["rules"][0]["language"] == "cel"
    assert policy.description["rules"][0]["source"] == "house.yaml:3"


def test_what_has_no_python_code_cannot_be_described():
    with pytest.raises(RefusedError) as refused:
        source_of(len)
    assert refused.value.code == "INVALID_RULE"
