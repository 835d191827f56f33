"""The identity of a function's code: everything that it reaches in its own package, and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from world.code.references import load_reference
from world.core import ActionContext, Domain, EffectCall, EffectType, effect, load_domain
from world.model.intent import IntentBody
from world.model.patch import Patch
from world.model.source import SourceEvent
from world.state.ports import Case

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MAIN = '''
"""The shop."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from pydantic import BaseModel, Field

from world.core import ActionContext, Domain, set_

from . import prices, registry
from .names import label
from . import deep as alias
from .prices import DISCOUNTS as CUTS


class State(BaseModel):
    stock: dict[str, int] = {}
    log: list[str] = []


shop = Domain("urn:test:shop", version="1.0.0", state=State)

FACTOR = 3
RATES = {"tea": 2, "cake": [1, 2]}
RATES["milk"] = 4
LIMITS = (1, 2)
ORDER = ["a", "b"]
UNUSED = 1


class Line(BaseModel):
    item: str


class Order(BaseModel):
    lines: list[Line] = []
    count: int = Field(default=1, le=9)


class Base:
    def base(self) -> int:
        return 10


class Money(Base):
    def worth(self) -> int:
        return self.base() + 1


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def around(*args: Any) -> Any:
        return [*function(*args), set_("log", ["called"])]

    return around


def total(order: Any, bonus: int = FACTOR) -> int:
    def nested(line: Any) -> int:
        return RATES.get(line.item, 0) * FACTOR

    return sum(nested(line) for line in order.lines) + len(LIMITS) + len(ORDER) + bonus


def unused() -> int:
    return UNUSED


def at_most(limit: int, extra: dict[str, int]) -> Any:
    def check(ctx: ActionContext, new: Order) -> Any:
        return [set_("stock", {"n": min(limit, extra["n"])})]

    return check


@shop.action("order", version="1")
@logged
def order(ctx: ActionContext, new: Order) -> Any:
    """Order."""
    import shopkit.latest

    from . import later
    from .late import late

    if new.count > 5:
        ctx.fail("MANY", label(new.count))
    yielded = Money().worth() + total(new) + prices.price("tea") + alias.inner.cost() + CUTS[0] + late()
    yielded += later.COST + shopkit.latest.COST
    return [set_("stock", {"n": yielded + registry.HANDLERS["x"](1)})]


shop.action("closed", version="1")(at_most(5, {"n": 7}))


@shop.computed("size", deps=["stock"])
def size(data: Any) -> int:
    return len(data["stock"])
'''
FILES = {
    "__init__.py": "",
    "main.py": MAIN,
    "prices.py": "from ._rates import BASE\n\nDISCOUNTS = [1, 2]\n\n\ndef price(item):\n    return BASE[item]\n",
    "_rates.py": "BASE = {'tea': 5}\n\n\ndef never():\n    return 0\n",
    "names.py": "from .impl import label as label\n",
    "impl.py": "def label(count):\n    return f'{count} of them'\n",
    "deep/__init__.py": "from . import inner\n",
    "deep/inner.py": "def cost():\n    return 8\n",
    "late.py": "def late():\n    return 1\n",
    "later.py": "COST = 3\n",
    "latest.py": "COST = 4\n",
    "registry.py": (
        "HANDLERS = {}\n\n\ndef register(name):\n    def add(function):\n        HANDLERS[name] = function\n"
        "        return function\n\n    return add\n"
    ),
    "handlers.py": "from .registry import register\n\n\n@register('x')\ndef handle(n):\n    return n + 1\n",
}
"""A package of several modules; ``main`` holds the domain."""


class Package:
    """A package that is written, loaded and written again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shopkit"
        self.write(FILES)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def forget(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shopkit"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def domain(self) -> Domain:
        self.forget()
        importlib.import_module("shopkit.handlers")
        loaded = importlib.import_module("shopkit.main").shop
        assert isinstance(loaded, Domain)
        return loaded

    def sources(self) -> dict[str, str | None]:
        return self.domain().sources()

    def changed(self, file: str, old: str, new: str) -> set[str]:
        """Return the names of the functions whose identity a change of one file changes."""
        before = self.sources()
        text = (self.folder / file).read_text()
        assert text.count(old) == 1, old
        self.write({file: text.replace(old, new)})
        changed = self.domain().changed(before)
        after = self.sources()
        assert set(changed) == {name for name in before if before[name] != after[name]}
        return set(changed)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Package(tmp_path)
    yield made
    made.forget()


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        pytest.param("main.py", "* FACTOR", "* FACTOR + 1", id="nested function of a helper"),
        pytest.param("main.py", "len(LIMITS)", "len(LIMITS) * 2", id="helper"),
        pytest.param("main.py", "FACTOR = 3", "FACTOR = 4", id="constant"),
        pytest.param("main.py", '"tea": 2', '"tea": 3', id="dict"),
        pytest.param("main.py", '"cake": [1, 2]', '"cake": [1, 3]', id="list in a dict"),
        pytest.param("main.py", 'RATES["milk"] = 4', 'RATES["milk"] = 5', id="change of a dict"),
        pytest.param("main.py", "LIMITS = (1, 2)", "LIMITS = (1, 3)", id="tuple"),
        pytest.param("main.py", 'ORDER = ["a", "b"]', 'ORDER = ["b", "a"]', id="list"),
        pytest.param("main.py", "return 10", "return 11", id="base class"),
        pytest.param("main.py", "self.base() + 1", "self.base() + 2", id="method"),
        pytest.param("main.py", '["called"]', '["call"]', id="decorator"),
        pytest.param("main.py", "bonus: int = FACTOR", "bonus: int = 8", id="default"),
        pytest.param("main.py", "new.count > 5", "new.count > 6", id="own text"),
        pytest.param("prices.py", "BASE[item]", "BASE[item] + 1", id="helper in another module"),
        pytest.param("prices.py", "DISCOUNTS = [1, 2]", "DISCOUNTS = [2, 2]", id="constant under another name"),
        pytest.param("_rates.py", "'tea': 5", "'tea': 6", id="constant two modules away"),
        pytest.param("impl.py", "of them", "of those", id="re-exported name"),
        pytest.param("deep/inner.py", "8", "9", id="alias of a package"),
        pytest.param("late.py", "1", "2", id="import in a function"),
        pytest.param("later.py", "3", "5", id="submodule imported from its package in a function"),
        pytest.param("latest.py", "4", "5", id="submodule imported by its full name in a function"),
        pytest.param("handlers.py", "n + 1", "n + 2", id="function in a registry"),
    ],
)
def test_a_change_of_what_an_action_reaches_changes_its_identity(
    package: Package, file: str, old: str, new: str
) -> None:
    assert package.changed(file, old, new) == {"action:order"}


@pytest.mark.requirement("CARD-replay")
def test_what_was_imported_before_makes_no_difference_to_an_identity(package: Package) -> None:
    before = package.sources()
    package.domain()
    importlib.import_module("shopkit.later")
    importlib.import_module("shopkit.latest")
    assert importlib.import_module("shopkit.main").shop.sources() == before


@pytest.mark.requirement("CARD-replay")
def test_a_change_of_the_input_model_changes_the_identity_of_every_action_that_takes_it(package: Package) -> None:
    assert package.changed("main.py", "le=9", "le=8") == {"action:order", "action:closed"}
    assert package.changed("main.py", "    item: str", "    item: str\n    size: int = 0") == {
        "action:order", "action:closed",
    }  # fmt: skip
    assert package.changed("main.py", "class Line(BaseModel):", "class Line(BaseModel, frozen=True):") == {
        "action:order", "action:closed",
    }  # fmt: skip


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize(
    ("old", "new"),
    [("at_most(5, ", "at_most(6, "), ('{"n": 7}', '{"n": 8}'), ("min(limit, ", "max(limit, ")],
)
def test_what_a_closure_holds_is_part_of_the_identity(package: Package, old: str, new: str) -> None:
    assert package.changed("main.py", old, new) == {"action:closed"}


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.py", "FACTOR = 3", "FACTOR   =  (3)  # three"),
        ("main.py", "return sum(nested(line)", "# the sum\n    return   sum(nested(line)"),
        ("main.py", '    """Order."""\n', ""),
        ("main.py", "class Money(Base):\n", 'class Money(Base):\n    """Money."""\n\n'),
        ("main.py", '"""The shop."""', '"""Another shop."""'),
        ("main.py", "UNUSED = 1", "UNUSED = 2"),
        ("main.py", "return UNUSED", "return UNUSED + 1"),
        ("main.py", "def unused() -> int:", "def more() -> int:\n    return 5\n\n\ndef unused() -> int:"),
        ("prices.py", "def price(item):\n", 'def price(item):\n    """Return the price."""\n'),
        ("_rates.py", "return 0", "return 1"),
    ],
)
def test_layout_comments_docstrings_and_unrelated_code_are_no_part_of_it(
    package: Package, file: str, old: str, new: str
) -> None:
    assert package.changed(file, old, new) == set()


def test_one_function_reached_by_none_of_the_others_changes_alone(package: Package) -> None:
    assert package.changed("main.py", 'len(data["stock"])', 'len(data["stock"]) + 1') == {"computed:size"}


def test_the_place_of_the_code_is_no_part_of_its_identity(tmp_path: Path) -> None:
    text = textwrap.dedent(
        """
        from world.core import Domain, set_
        d = Domain("urn:test:place", version="1.0.0", state={"fields": {}})
        def helper(): return 1
        @d.action("a", version="1")
        def a(ctx): return [set_("x", helper())]
        """
    )
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(text)
    one, two = (load_reference(f"{tmp_path / name}:d") for name in ("one.py", "two.py"))
    assert one.sources() == two.sources()
    assert one.changed(two.sources()) == ()


def test_a_module_beside_a_bare_file_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "main_of_shop.py").write_text(
        "from world.core import Domain, set_\nfrom beside_the_shop import helper\n"
        'd = Domain("urn:test:beside", version="1.0.0", state={"fields": {}})\n'
        '@d.action("a", version="1")\ndef a(ctx): return [set_("x", helper())]\n'
    )
    found = []
    for text in ("def helper(): return 1\n", "def helper(): return 22\n"):
        (tmp_path / "beside_the_shop.py").write_text(text)
        sys.modules.pop("beside_the_shop", None)
        for name in [name for name in sys.modules if name.startswith("_worldprotocol_")]:
            del sys.modules[name]
        found.append(load_reference(f"{tmp_path / 'main_of_shop.py'}:d").sources())
    sys.modules.pop("beside_the_shop", None)
    assert found[0] != found[1]


def test_a_local_predicate_has_its_identity_too(tmp_path: Path) -> None:
    def made(number: int) -> Domain:
        file = tmp_path / f"local{number}.py"
        file.write_text(
            'from world.core import Domain, set_\nd = Domain("urn:t", version="1.0.0", state={"fields": {}})\n'
            f"LIMIT = {number}\n"
            '@d.action("a", version="1")\ndef a(ctx): return [set_("x", 1)]\n'
            '@d.available("a")\ndef a_is_available(ctx): return len(ctx.data) < LIMIT\n'
        )
        domain = load_reference(f"{file}:d")
        assert isinstance(domain, Domain)
        return domain

    assert made(2).changed(made(1).sources()) == ("available:a",)


@pytest.mark.requirement("CARD-replay")
def test_other_distributions_are_named_with_their_versions(package: Package) -> None:
    named = package.domain().distributions()
    assert named == {
        "Python": platform.python_version(),
        "pydantic": metadata.version("pydantic"),
        "world-protocol": metadata.version("world-protocol"),
    }
    go = {"go": {"flow": {"kind": "halt"}}}
    portable = load_domain({"id": "urn:t", "version": "1.0.0", "state": {"fields": {}}, "actions": go})
    assert portable.distributions() == {}


@pytest.mark.requirement("CARD-replay")
def test_an_identity_says_its_kind_and_one_of_the_first_kind_is_compared_by_its_own_rule(package: Package) -> None:
    domain = package.domain()
    assert all(str(one).startswith("tree-1:") and len(str(one)) == 7 + 64 for one in domain.sources().values())
    first = domain.own_sources()
    assert all(len(str(one)) == 64 for one in first.values())
    package.changed("main.py", "FACTOR = 3", "FACTOR = 4")
    assert package.domain().changed(first) == ()
    package.changed("main.py", "new.count > 5", "new.count > 6")
    assert package.domain().changed(first) == ("action:order",)
    assert package.domain().changed({**first, "action:gone": "0" * 64}) == ("action:gone", "action:order")


def test_an_identity_of_a_kind_that_is_not_known_counts_as_changed(package: Package) -> None:
    domain = package.domain()
    recorded = {**domain.sources(), "action:order": "tree-9:" + "0" * 64}
    assert domain.changed(recorded) == ("action:order",)


@pytest.mark.requirement("CARD-replay")
def test_a_decorator_of_another_distribution_hides_nothing(tmp_path: Path) -> None:
    found = []
    for number in (1, 2):
        file = tmp_path / f"wrapped{number}.py"
        file.write_text(
            "import functools\nfrom pydantic import validate_call\nfrom world.core import Domain\n"
            'd = Domain("urn:t", version="1.0.0", state={"fields": {}})\n'
            f"@functools.cache\ndef helper(): return {number}\n"
            f'@d.computed("one", deps=[])\n@validate_call\ndef one(data: dict): return helper()\n'
            f'@d.computed("two", deps=[])\n@functools.lru_cache\ndef two(data): return {number}\n'
            f'@d.computed("three", deps=[])\n@functools.cache\ndef three(data): return 3\n'
            f'd.computed("four", deps=[])(functools.partial(lambda number, data: number, {number}))\n'
        )
        found.append(load_reference(f"{file}:d"))
    assert None not in found[0].sources().values()
    assert found[0].changed(found[1].sources()) == ("computed:four", "computed:one", "computed:two")


@pytest.mark.requirement("CARD-replay")
def test_an_identity_is_the_same_in_every_process(package: Package) -> None:
    script = "import json, shopkit.handlers, shopkit.main as main; print(json.dumps(main.shop.sources()))"
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{package.folder.parent}{os.pathsep}{ROOT}"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    ]
    assert [json.loads(one) for one in told] == [package.sources()] * 3


def hold_anything() -> Iterator[Callable[..., Any]]:
    import threading

    class Odd:
        def __reduce_ex__(self, _: Any) -> Any:
            raise RuntimeError("not to be pickled")

    loop: list[Any] = []
    loop.append(loop)
    for value in (threading.Lock(), Odd(), loop, iter([1]), sys, open, type("Made", (), {})(), print):
        yield lambda ctx, held=value: [held]


def test_no_value_that_a_function_holds_keeps_it_from_having_an_identity() -> None:
    for at, function in enumerate(hold_anything()):
        domain = Domain("urn:t", version="1.0.0", state={"fields": {}})
        domain.computed("one", deps=[])(function)
        assert str(domain.sources()["computed:one"]).startswith("tree-1:"), at


def test_code_that_cannot_be_analysed_has_the_identity_of_its_own_source(tmp_path: Path) -> None:
    found = []
    for number in (1, 2):
        file = tmp_path / f"deep{number}.py"
        file.write_text(
            'from world.core import Domain\nd = Domain("urn:t", version="1.0.0", state={"fields": {}})\n'
            f'@d.computed("one", deps=[])\ndef one(data):\n    return {" + ".join([str(number)] * 101)}\n'
        )
        found.append(load_reference(f"{file}:d"))
    assert all(len(one.sources()["computed:one"]) == 64 for one in found)
    assert found[0].changed(found[0].sources()) == ()
    assert found[0].changed(found[1].sources()) == ("computed:one",)


def test_functions_on_one_line_are_told_apart() -> None:
    domain = Domain("urn:t", version="1.0.0", state={"fields": {}})
    one, two = (lambda data: 1), (lambda data: 2)
    domain.computed("one", deps=[])(one)
    domain.computed("two", deps=[])(two)
    assert len(set(domain.sources().values())) == 2


def test_public_names_stay_in_the_modules_that_recorded_identities_name() -> None:
    """An identity names what code of users holds of the engine by its module; moved, their programs would differ."""
    places = {
        "EffectCall": "world.core.effects.effect_types",
        "EffectType": "world.core.effects.effect_types",
        "effect": "world.core.effects.effect_types",
        "Domain": "world.core.domain",
        "ActionContext": "world.core.python_action",
        "Patch": "world.model.patch",
        "Case": "world.state.ports",
        "SourceEvent": "world.model.source",
        "IntentBody": "world.model.intent",
    }
    found: list[Any] = [EffectCall, EffectType, effect, Domain, ActionContext, Patch, Case, SourceEvent, IntentBody]
    assert {one.__name__: one.__module__ for one in found} == places
