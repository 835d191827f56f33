"""The page about the specifications names what there is, and its deviations are what the engine does."""

from __future__ import annotations

import re
from pkgutil import resolve_name
from typing import Any

import pytest

from authority import Approve
from projections import Pruning
from tests.authority.cases import ASKING, always, make_case, scope
from tests.core.test_ungoverned import DOMAIN
from tests.documents import ROOT
from world.core import load_domain
from world.errors import RefusedError
from world.model.intent import IntentMeta
from worldprotocol import Policy, Realm

PAGE = (ROOT / "docs" / "reference" / "specifications.md").read_text(encoding="utf-8")


def section(title: str) -> list[list[str]]:
    """Return the rows of the table of a section."""
    text = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("|")][2:]


def test_every_name_on_the_page_exists() -> None:
    names = [name for row in section("Names") for name in re.findall(r"`(\w+(?:\.\w+)+)`", row[1])]
    assert len(names) > 25
    for name in names:
        module, _, rest = name.partition(".")
        found: Any = resolve_name(module)
        for part in rest.split("."):
            found = getattr(found, part) if hasattr(found, part) else resolve_name(f"{found.__name__}.{part}")
        assert found is not None


def test_every_deviation_has_its_sentence_and_its_reason() -> None:
    assert [len(row) for row in section("Deviations")] == [3] * 5


@pytest.mark.requirement("INT-7.4.3a")
def test_unknown_actions_are_marked_unless_certain_ones_are_asked_for() -> None:
    assert Pruning(policy="mark_only").keeps("unknown")
    assert not Pruning.read({"policy": "mark_only", "includeUnknown": False}).keeps("unknown")


@pytest.mark.requirement("INT-13.3")
def test_an_approval_has_the_proposed_scope_and_never_more() -> None:
    policy = Policy("p", [always(Approve())])
    asked = scope("data.todos")
    assert policy.evaluate(make_case(proposed=asked), ASKING).approved_scope == asked
    assert policy.evaluate(make_case(), ASKING).approved_scope is None
    with pytest.raises(TypeError):
        Approve(scope=None)  # type: ignore[call-arg]


def test_the_other_form_of_meta_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        IntentMeta.read({"origin": "ui", "timestamp": 1})
    assert refused.value.code == "INVALID_VALUE"


def test_a_lease_of_a_file_without_a_workspace_is_granted_and_nothing_is_backed_up() -> None:
    with Realm.create("sqlite:///:memory:", domain=load_domain(DOMAIN)) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        with realm.leases.acquire(agent="ann", resource="FILE:/a.txt", predicate="MUTATES", timeout=0) as held:
            assert held.is_active
        topics = {event.TOPIC for _, event in realm.events()}
    assert not {topic for topic in topics if "backup" in topic}
