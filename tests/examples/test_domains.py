"""The example domains are the same in MEL, YAML and Python, and a realm works with each form."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.cli.realm import ROOT
from world.core import Domain, load_domain
from world.core.mel.compiling import compile_mel
from world.core.mel.formatting import format_tokens
from worldprotocol import Realm

DOMAINS = ROOT / "examples" / "domains"
FORMS: dict[str, tuple[Path, str]] = {
    "checkout": (ROOT / "examples" / "repository" / "shared" / "checkout", "examples.domains.checkout"),
    "todo": (DOMAINS / "todo", "examples.domains.todo"),
    "ledger": (DOMAINS / "ledger", "examples.domains.ledger"),
}


@pytest.mark.requirement("IC-mel")
@pytest.mark.parametrize("name", FORMS)
def test_a_domain_has_one_hash_in_all_its_forms(name: str) -> None:
    path, module = FORMS[name]
    python = getattr(importlib.import_module(module), name)
    assert isinstance(python, Domain)
    hashes = {load_domain(path.with_suffix(suffix)).schema.hash for suffix in (".mel", ".yaml")}
    assert hashes == {python.schema.hash}


@pytest.mark.parametrize("path", [path.with_suffix(".mel") for path, _ in FORMS.values()], ids=lambda path: path.name)
def test_an_example_is_laid_out_as_the_formatter_does(path: Path) -> None:
    text = path.read_text()
    assert format_tokens(text) == text
    assert compile_mel(text).warnings == []


def test_a_realm_of_the_to_do_list_does_what_its_mel_says() -> None:
    with Realm.create("sqlite:///:memory:", domain=DOMAINS / "todo.mel") as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        assert getattr(realm.act("ann", "todo.add", {"title": " "}).error, "code", None) == "INTENT_NOT_DISPATCHABLE"
        assert realm.act("ann", "todo.add", {"title": " tea "}).status == "completed"
        (entry,) = realm.data()["todos"]
        assert entry["title"] == "tea"
        assert getattr(realm.act("ann", "todo.clear").error, "code", None) == "ACTION_UNAVAILABLE"
        assert getattr(realm.act("ann", "todo.toggle", {"id": "x"}).error, "message", None) == "There is no entry x."
        assert realm.act("ann", "todo.toggle", {"id": entry["id"]}).status == "completed"
        assert realm.act("ann", "todo.show", {"which": "all"}).status == "completed"
        assert realm.act("ann", "todo.clear").status == "completed"
        assert realm.data() == {"todos": [], "shown": "all"}
