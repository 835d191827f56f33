"""What a pydantic model says of a state is enforced, on both sides of every bound, and only where patches touched."""

from __future__ import annotations

import datetime
import enum
import uuid
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tests.support.tables import for_each
from world.core import ComputeContext, Domain, Invocation, Patch, compute, genesis, load_schema, merge, set_, unset
from world.core.compute import Computation, apply
from world.core.state_model.checking import places_of
from world.core.state_model.dialect import SchemaNode
from world.core.validate import check_input
from world.errors import RefusedError
from world.model.immutable_json import freeze
from world.model.snapshot import Snapshot

SENTENCES = Path(__file__).parent / "state_sentences.txt"
CONTEXT = ComputeContext(now=5_000, random_seed="intent-1")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Bed(BaseModel):
    litres: int = Field(ge=0)
    plants: list[Annotated[str, Field(min_length=1)]] = []
    colour: Colour | None = None


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0)


class Square(BaseModel):
    kind: Literal["square"]
    side: float = Field(gt=0)
    points: list[int] = []


class Tree(BaseModel):
    name: str
    below: list[Tree] = []
    named: dict[str, Tree] = {}


A = Annotated[str, Field(pattern="^a")]
B = Annotated[str, Field(pattern="^b")]
C = Annotated[str, Field(pattern="^c")]
D = Annotated[str, Field(pattern="^d")]
E = Annotated[str, Field(pattern="^e")]


class Garden(BaseModel):
    beds: dict[str, Bed] = {}
    least: int = Field(default=0, ge=0)
    most: int = Field(default=0, le=10)
    above: float = Field(default=1, gt=0)
    below: float = Field(default=0, lt=10)
    dozens: int = Field(default=0, multiple_of=12)
    cents: float = Field(default=0, multiple_of=0.01)
    text: str = Field(default="ab", min_length=2, max_length=4)
    code: str = Field(default="AB-1", pattern=r"^[A-Z]{2}-\d$")
    few: list[int] = Field(default=[1], min_length=1, max_length=3)
    members: dict[str, int] = Field(default={"a": 1}, min_length=1, max_length=2)
    coded: dict[Annotated[str, Field(pattern="^k")], int] = {}
    coloured: dict[Colour, int] = {}
    pair: tuple[int, str] = (1, "a")
    several: tuple[int, ...] = ()
    either: int | str = 0
    maybe: int | None = None
    begins: A | B | C | D | E = "a"
    shape: Annotated[Circle | Square, Field(discriminator="kind")] | None = None
    loose: Bed | dict[str, str] | None = None
    mode: Literal["open", "shut"] = "open"
    colour: Colour = Colour.RED
    on: datetime.date | None = None
    at: datetime.datetime | None = None
    id: uuid.UUID | None = None
    flag: bool = False
    tree: Tree | None = None
    free: dict[str, Any] = {}
    secret: SecretStr | None = None


def domain_of(model: type[BaseModel] = Garden) -> Domain[Any]:
    """Return a domain with an action that makes the patches of its input, which are portable data."""
    domain = Domain("urn:test:garden", version="1.0.0", state=model)

    class Wanted(BaseModel):
        patches: list[dict[str, Any]]

    def go(ctx: Any, wanted: Any) -> list[Patch]:
        return [Patch.from_wire(one) for one in wanted.patches]

    go.__annotations__["wanted"] = Wanted
    domain.action("go", version="1")(go)
    return domain


DOMAIN = domain_of()


def started(domain: Domain[Any] = DOMAIN, **data: Any) -> Snapshot:
    return genesis(domain, CONTEXT, data)


def made(*patches: Patch, base: Snapshot | None = None, domain: Domain[Any] = DOMAIN) -> Computation:
    wanted = {"patches": [patch.to_wire() for patch in patches]}
    return compute(domain, base or started(domain), Invocation("go", wanted, "intent-1"), CONTEXT)


def refused(*patches: Patch, base: Snapshot | None = None, domain: Domain[Any] = DOMAIN) -> tuple[str, list[str]]:
    """Return the code and the paths of the faults; the data is as it was."""
    before = base or started(domain)
    done = made(*patches, base=before, domain=domain)
    assert done.error is not None
    assert done.snapshot.data is before.data
    assert done.patches == ()
    context = done.error.context or {}
    return done.error.code, [fault["path"] for fault in context.get("faults", [])]


BED = {"litres": 1, "plants": ["leek"]}
GOOD_AND_BAD: list[tuple[str, list[Any], list[Any]]] = [
    ("least", [0, 1], [-1]),
    ("most", [10, -3], [11]),
    ("above", [0.001], [0, -1]),
    ("below", [9.999], [10, 11]),
    ("dozens", [0, 12, -24], [13, 6]),
    ("cents", [0.01, 0.07, 1.1, 3], [0.005, 1.001]),
    ("text", ["ab", "abcd", "🌱🌱"], ["a", "abcde"]),
    ("code", ["ZZ-9"], ["zz-9", "ZZ-99", "ZZ-9\n"]),
    ("few", [[1], [1, 2, 3]], [[], [1, 2, 3, 4]]),
    ("members", [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": 1, "b": 2, "c": 3}]),
    ("coded", [{}, {"kale": 1}], [{"leek": 1}]),
    ("coloured", [{"red": 1}], [{"green": 1}]),
    ("pair", [[2, "b"]], [[2], [2, "b", "c"]]),
    ("on", ["2024-02-29"], ["2023-02-29", "2024-2-1", "20240201"]),
    ("at", ["2024-02-29T23:59:59Z", "2024-01-01t00:00:00.5+02:00"], ["2024-01-01T00:00:00", "2024-01-01", "x"]),
    ("id", ["0b9f7c1e-3a52-4d7e-9a55-6f1f0c2f8a11"], ["0b9f7c1e3a524d7e9a556f1f0c2f8a11", "x"]),
    ("begins", ["ab", "e"], ["x"]),
    ("shape", [{"kind": "circle", "radius": 1}, None], [{"kind": "circle", "radius": 0}, {"kind": "circle"}]),
    ("loose", [BED, {"a": "b"}, {}], [{"a": 1}, {"litres": -1}]),
]  # fmt: skip
WRONG_SHAPES: list[tuple[str, Any]] = [
    ("least", 0.5), ("least", "1"), ("least", None), ("flag", 1), ("text", 5), ("text", None), ("few", {}),
    ("several", [1, "a"]), ("pair", ["a", 1]), ("either", True), ("either", None), ("maybe", "x"), ("mode", "ajar"),
    ("colour", "green"), ("beds", {"a": {"litres": "x"}}), ("beds", {"a": {}}), ("beds", {"a": None}),
    ("beds", {"a": {"litres": 1, "x": 1}}), ("tree", {"name": "a", "below": [{"name": 1}]}), ("beds.a.b", 1),
]  # fmt: skip


@pytest.mark.requirement("IC-validate")
@for_each(("field", "good", "bad"), GOOD_AND_BAD, ids=[one[0] for one in GOOD_AND_BAD])
def test_each_constraint_holds_on_both_sides_of_its_bound(field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        done = made(set_(field, value))
        assert done.error is None, done.error
        assert started(**{field: value}).data[field] == freeze(value)
    for value in bad:
        assert refused(set_(field, value))[0] in ("INVALID_STATE", "TYPE_MISMATCH"), value
        with pytest.raises(RefusedError) as caught:
            started(**{field: value})
        assert caught.value.code == "INVALID_DATA"


def sentences() -> list[str]:
    """Return the error of each unfit value, as a log records it."""
    unfit = [(field, value) for field, _, bad in GOOD_AND_BAD for value in bad] + WRONG_SHAPES
    errors = [(path, value, made(set_(path, value)).error) for path, value in unfit]
    return [f"{path} = {value!r}: {error.message}" for path, value, error in errors if error is not None]


@pytest.mark.requirement("IC-validate", "CARD-replay")
def test_the_faults_of_states_are_recorded_in_these_sentences() -> None:
    """They are in ``state_sentences.txt``; ``python -m tests.core.test_state_models`` writes it anew."""
    assert sentences() == SENTENCES.read_text(encoding="utf-8").splitlines()


@pytest.mark.requirement("IC-validate")
@for_each(("path", "value"), WRONG_SHAPES)
def test_a_value_of_another_type_or_name_does_not_fit(path: str, value: Any) -> None:
    assert refused(set_(path, value))[0] in ("TYPE_MISMATCH", "INVALID_STATE", "PATH_NOT_FOUND")


@pytest.mark.requirement("IC-validate")
def test_unions_tuples_optionals_and_recursive_models_take_what_they_say() -> None:
    tree = {"name": "a", "below": [{"name": "b", "named": {"x.y": {"name": "c"}}}]}
    for path, value in (
        ("either", "x"), ("either", 3), ("maybe", 3), ("maybe", None), ("several", [1, 2, 3]), ("pair", [0, ""]),
        ("pair.0", 7), ("tree", tree), ("colour", "blue"), ("mode", "shut"), ("free", {"a": [1, {"b": None}]}),
        ("free.a.b", 5), ("least", 1.0),
    ):  # fmt: skip
        assert made(set_(path, value)).error is None, path
    inner = r"tree.below.0.named.x\.y"
    base = made(set_("tree", tree)).snapshot
    assert made(set_(f"{inner}.name", "d"), base=base).error is None
    assert refused(set_(f"{inner}.name", 5), base=base)[0] == "TYPE_MISMATCH"
    assert refused(set_(f"{inner}.nosuch", 5), base=base)[0] == "PATH_NOT_FOUND"


@pytest.mark.requirement("IC-validate")
def test_a_constraint_names_the_path_with_dots_in_keys_escaped() -> None:
    base = started(beds={"a.b": BED, "c": BED})
    assert refused(set_(r"beds.a\.b.litres", -1), base=base) == ("INVALID_STATE", [r"beds.a\.b.litres"])
    assert refused(set_(r"beds.x\.y", {"litres": 1, "plants": ["", "a"]})) == (
        "INVALID_STATE",
        [r"beds.x\.y.plants.0"],
    )
    assert refused(merge("beds.c", {"litres": -5}), base=base) == ("INVALID_STATE", ["beds.c.litres"])
    assert made(set_(r"beds.a\.b.litres", 0), base=base).error is None


@pytest.mark.requirement("IC-validate")
def test_what_no_patch_shows_alone_is_found_when_the_action_ends() -> None:
    base = started(beds={"a": BED}, shape={"kind": "square", "side": 2})
    assert refused(unset("beds.a.litres"), base=base) == ("INVALID_STATE", ["beds.a.litres"])
    assert refused(unset("least"), base=base) == ("INVALID_STATE", ["least"])
    assert refused(unset("few.0")) == ("INVALID_STATE", ["few"])
    assert refused(set_("few.1", 2), set_("few.2", 3), set_("few.3", 4)) == ("INVALID_STATE", ["few"])
    assert refused(set_("members.b", 2), set_("members.c", 2)) == ("INVALID_STATE", ["members"])
    assert refused(set_("coded.leek", 2)) == ("INVALID_STATE", ["coded.leek"])
    assert refused(unset("pair.0")) == ("INVALID_STATE", ["pair", "pair.0"])
    assert refused(set_("shape.kind", "circle"), base=base)[0] == "INVALID_STATE"
    assert refused(set_("beds.new.plants", ["a"])) == ("INVALID_STATE", ["beds.new.litres"])
    assert made(unset("maybe"), base=base).error is None


@pytest.mark.requirement("IC-validate")
def test_a_state_may_be_unfit_between_the_patches_of_one_action() -> None:
    base = started(shape={"kind": "square", "side": 2})
    turned = made(set_("shape.kind", "circle"), unset("shape.side"), set_("shape.radius", 1), base=base)
    assert turned.error is None
    assert turned.snapshot.data["shape"] == {"kind": "circle", "radius": 1}
    assert made(unset("few.0"), set_("few.0", 5)).error is None
    grown = made(set_("beds.new.plants", ["a"]), set_("beds.new.litres", 3))
    assert grown.error is None


@pytest.mark.requirement("IC-validate")
def test_a_node_that_became_unfit_and_was_moved_elsewhere_is_found() -> None:
    base = started(tree={"name": "a", "below": [{"name": "b"}] * 40})
    domain = domain_of()

    def go(ctx: Any) -> Any:
        yield unset("tree.below.0.name")
        yield set_("tree.named", {"moved": ctx.data["tree"]["below"][0]})
        return [set_("tree.below", ctx.data["tree"]["below"][1:])]

    domain.action("move", version="1")(go)
    done = compute(domain, base, Invocation("move", None, "intent-1"), CONTEXT)
    assert done.error is not None
    assert "moved.name is required" in done.error.message


class Anything(BaseModel):
    free: dict[str, Any] = {}


@pytest.mark.requirement("IC-validate")
def test_patches_that_are_applied_outside_of_an_action_are_checked_too() -> None:
    base = started(beds={"a": BED})
    after = apply(DOMAIN, base, [set_("beds.a.litres", 5), unset("beds.a.litres")], CONTEXT)
    assert after.data is base.data
    assert after.system.last_error is not None
    assert (after.system.last_error.code, after.system.last_error.node_path) == ("INVALID_STATE", "beds.a.litres")
    assert after.system.last_error.action_id == ""  # no action applied them


class Huge(BaseModel):
    rows: dict[str, Bed] = {}
    listed: list[Bed] = []
    shapes: dict[str, Circle | Square] = {}
    whole: Bed | dict[str, dict[str, int]] = {}


SIZES = (100, 10_000)


@cache
def huge(size: int) -> tuple[Domain[Any], Snapshot]:
    domain = domain_of(Huge)
    rows = {f"r{at}": BED for at in range(size)}
    shapes = {f"s{at}": {"kind": "circle", "radius": 1} for at in range(size)}
    whole = {f"r{at}": {"x": at} for at in range(size)}
    return domain, started(domain, rows=rows, listed=list(rows.values()), shapes=shapes, whole=whole)


def visits(domain: Domain[Any], base: Snapshot, *patches: Patch) -> int:
    checker = domain.schema.checker
    before = checker.visited
    done = made(*patches, base=base, domain=domain)
    assert done.error is None, done.error
    return checker.visited - before


@pytest.mark.requirement("IC-validate")
@pytest.mark.parametrize(
    ("patches", "most"),
    [
        ([set_("rows.r7.litres", 5)], 8),
        ([unset("rows.r7.colour"), merge("rows.r8", {"litres": 3})], 10),
        ([set_("rows.new", BED)], 8),
        ([unset("rows.r7")], 4),
        ([set_("listed.7.litres", 5)], 8),
        ([set_("shapes.s7.radius", 5)], 14),
        ([set_("whole.r7.x", 5)], 12),
    ],
)
def test_a_change_visits_as_many_places_in_a_huge_map_as_in_a_small_one(patches: list[Patch], most: int) -> None:
    """The cost of a check is that of the change: 10,000 members cost what 100 do."""
    small, large = (visits(*huge(size), *patches) for size in SIZES)
    assert small == large <= most


class Left(BaseModel):
    left: int
    more: dict[str, int] = {}


class Right(BaseModel):
    right: int
    more: dict[str, str] = {}


class Sides(BaseModel):
    side: Left | Right


@pytest.mark.requirement("IC-validate")
def test_a_change_within_alternatives_is_checked_against_the_one_that_fits_the_whole() -> None:
    base = started(domain := domain_of(Sides), side={"right": 1, "more": {"a": "b"}})
    assert refused(set_("side.more.c", 1), base=base, domain=domain) == ("INVALID_STATE", ["side"])
    assert made(set_("side.more.c", "d"), base=base, domain=domain).error is None


def test_a_place_below_a_list_is_known_where_the_list_is_open() -> None:
    array, first = frozenset({"array"}), SchemaNode()
    assert len(places_of(SchemaNode(types=array), ("7",))) == 1
    whole = SchemaNode(types=array, is_complete=True, prefix=(first,))
    assert [len(places_of(whole, (at,))) for at in ("0", "1")] == [1, 0]


def test_a_list_that_is_set_again_with_one_more_element_visits_the_new_one_alone() -> None:
    for size in SIZES:
        domain = domain_of(Huge)
        base = started(domain, listed=[BED] * size)
        assert len(base.data["listed"]) == size

        def grow(ctx: Any) -> list[Patch]:
            return [set_("listed", [*ctx.data["listed"], BED])]

        domain.action(f"grow{size}", version="1")(grow)
        before = domain.schema.checker.visited
        done = compute(domain, base, Invocation(f"grow{size}", None, "intent-1"), CONTEXT)
        assert done.error is None
        assert domain.schema.checker.visited - before <= 10


def test_a_patch_of_a_huge_map_names_the_one_fault() -> None:
    base = started(domain := domain_of(Huge), rows={f"r.{at}": BED for at in range(2_000)})
    assert refused(set_(r"rows.r\.7.litres", -1), base=base, domain=domain) == ("INVALID_STATE", [r"rows.r\.7.litres"])


@pytest.mark.requirement("IC-validate")
def test_an_input_is_checked_by_its_schema_alone() -> None:
    class Order(BaseModel):
        model_config = ConfigDict(alias_generator=lambda name: name.title())
        item: str = Field(min_length=1)
        lines: list[Bed] = []
        prices: dict[str, Annotated[float, Field(ge=0)]] = {}

    def go(ctx: Any, order: Any) -> None: ...

    go.__annotations__["order"] = Order
    domain = Domain("urn:test:order", version="1.0.0", state=Anything)
    domain.action("go", version="1")(go)
    portable = load_schema(domain.schema.portable)  # no function and no model of the domain
    spec = portable.actions["go"].input

    def paths(value: Any) -> list[str]:
        return [fault.path for fault in check_input(spec, freeze(value))]

    assert paths({"Item": "tea", "Lines": [BED], "Prices": {"a.b": 0}}) == []
    assert paths({"Item": "", "Lines": [BED, {"litres": -1}], "Prices": {"a.b": -0.5}}) == [
        "input.Item", "input.Lines.1.litres", r"input.Prices.a\.b",
    ]  # fmt: skip
    assert paths(None) == ["input"]
    assert paths({"item": "tea"}) == ["input.Item", "input.item"]
    assert paths({"Item": "tea", "Lines": None}) == ["input.Lines"]


def test_a_secret_of_a_state_is_a_reference() -> None:
    assert made(set_("secret", "${secret:KEY}")).error is None
    done = made(set_("secret", "hunter2"))
    assert done.error is not None
    assert "hunter2" not in done.error.message


def test_the_dialect_is_part_of_the_hash_and_an_older_schema_keeps_its_own() -> None:
    class Narrower(BaseModel):
        free: dict[str, int] = {}

    assert domain_of(Anything).schema.hash != domain_of(Narrower).schema.hash
    assert load_schema(DOMAIN.schema.portable).hash == DOMAIN.schema.hash
    older = DOMAIN.copied()
    assert not older.take_form("0" * 64, 1)
    assert older.schema.hash == DOMAIN.schema.hash


def test_a_domain_goes_on_in_the_earlier_form_that_a_log_adopted() -> None:
    class Small(BaseModel):
        beds: dict[str, int] = {}
        count: int = Field(default=0, ge=0)

    domain = domain_of(Small)
    portable = {
        **domain.schema.portable,
        "state": {"fields": {
            "beds": {"type": "object", "required": True, "default": {}},
            "count": {"type": "number", "required": True, "default": 0},
        }},
    }  # fmt: skip
    actions = {"go": {**portable["actions"]["go"], "input": {
        "type": "object", "required": True,
        "fields": {"patches": {"type": "array", "required": True, "items": {"type": "object"}}},
    }}}  # fmt: skip
    older = load_schema({**{key: value for key, value in portable.items() if key != "hash"}, "actions": actions})
    form = domain.copied()
    assert form.take_form(older.hash, 1)
    assert form.schema.portable == older.portable
    assert made(set_("count", -0.5), set_("beds.a", "x"), domain=form).error is None  # the rules of then
    form.take_newest_form()
    assert form.schema.hash == domain.schema.hash
    assert refused(set_("count", -1), domain=form)[0] == "INVALID_STATE"


if __name__ == "__main__":
    SENTENCES.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
