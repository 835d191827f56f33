"""Handlers are found by reference or in installed packages; what cannot be loaded is refused by name."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from host import EffectRegistry, find_effects, handler, load_handlers
from host.builtin import BUILTIN
from world.errors import RefusedError

ROOT = Path(__file__).resolve().parent.parent.parent

SOURCE = """
from dataclasses import dataclass
from host import EffectRegistry, handler

loads = []
loads.append(1)

@dataclass
class Mail:
    to: str

@handler("mail.send")
def send(params, call):
    return Mail(params["to"]).to

@handler("mail.read")
async def read(params, call):
    return len(loads)

both = [send, read]
registry = EffectRegistry(both)
table = {'mail.send': send}
mixed = [send, 3]
text = "send"
def plain(params, call):
    return None
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my effects.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("attribute", "types"),
    [("send", ["mail.send"]), ("both", ["mail.send", "mail.read"]), ("registry", ["mail.read", "mail.send"])],
)
def test_a_file_gives_a_handler_a_list_of_handlers_or_a_registry(file: str, attribute: str, types: list[str]) -> None:
    assert [given.type for given in load_handlers(f"{file}:{attribute}")] == types


def test_two_references_into_one_file_share_its_module(file: str) -> None:
    registry = find_effects([f"{file}:send", f"{file}:read", f"{file}:both"], entry_points=False, builtin=False)
    assert [given.type for given in registry] == ["mail.read", "mail.send"]


def test_an_installed_module_gives_its_handlers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "effects_of_a_package.py").write_text(SOURCE + "class Space:\n    inner = send\n")
    monkeypatch.syspath_prepend(tmp_path)
    (given,) = load_handlers("effects_of_a_package:Space.inner")
    assert given.source == "effects_of_a_package:send"


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("no_colon", "BAD_REFERENCE"),
        (":send", "BAD_REFERENCE"),
        ("module:", "BAD_REFERENCE"),
        ("no_such_module_at_all:send", "NOT_LOADED"),
        ("{file}:absent", "NOT_LOADED"),
        ("{file}x.py:send", "NOT_LOADED"),
        ("{file}:mixed", "INVALID_HANDLER"),
        ("{file}:text", "INVALID_HANDLER"),
        ("{file}:plain", "INVALID_HANDLER"),
        ("{file}:Mail", "INVALID_HANDLER"),
        ("{file}:table", "INVALID_HANDLER"),
    ],
)
def test_a_reference_to_no_handler_is_refused_by_name(file: str, reference: str, code: str) -> None:
    named = reference.format(file=file)
    with pytest.raises(RefusedError) as refused:
        load_handlers(named)
    assert refused.value.code == code
    assert repr(named) in refused.value.message


def test_a_relative_file_is_found_from_the_folder_it_is_given_with(file: str) -> None:
    path = Path(file)
    assert [given.type for given in load_handlers(f"{path.name}:send", base=path.parent)] == ["mail.send"]
    found = find_effects([f"{path.name}:both"], entry_points=False, base=path.parent, builtin=False)
    assert len(found) == 2


def offer(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    points = [EntryPoint(name, value, "worldprotocol.effects") for name, value in values.items()]
    monkeypatch.setattr(
        "world.code.references.entry_points",
        lambda *, group: points if group == "worldprotocol.effects" else [],
    )


def offering_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, effect_type: str) -> None:
    source = f"from host import handler\n\n@handler({effect_type!r})\ndef act(params, call):\n    return 1\n"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)


def test_installed_packages_offer_handlers_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offering_package(tmp_path, monkeypatch, "offered_effects", "offered.act")
    offer(monkeypatch, act="offered_effects:act")
    assert [given.type for given in find_effects(builtin=False)] == ["offered.act"]
    assert len(find_effects(entry_points=False, builtin=False)) == 0


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, broken="no_such_module_at_all:act")
    with pytest.raises(RefusedError, match=r"'broken' of worldprotocol\.effects") as refused:
        find_effects()
    assert refused.value.code == "NOT_LOADED"


def test_an_entry_point_that_is_no_handler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offers_nothing.py").write_text("act = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    offer(monkeypatch, empty="offers_nothing:act")
    with pytest.raises(RefusedError, match="entry point 'empty' provides a int, which is not an effect handler"):
        find_effects()


def test_a_package_and_the_operator_must_not_both_handle_one_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    offering_package(tmp_path, monkeypatch, "rival_effects", "mail.send")
    offer(monkeypatch, rival="rival_effects:act")
    with pytest.raises(RefusedError, match=r"rival_effects:act and .*:send"):
        find_effects([f"{file}:send"])


def test_nothing_is_found_where_nothing_is_installed_nor_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)
    assert isinstance(find_effects(builtin=False), EffectRegistry)
    assert len(find_effects(builtin=False)) == 0


def test_what_is_built_in_is_always_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)
    registry = find_effects()
    assert [given.type for given in registry] == sorted(given.type for given in BUILTIN)
    assert {"file.write", "http.request", "process.run", "timer.wait"} <= registry.builtin


def test_an_own_handler_takes_the_place_of_a_built_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    offering_package(tmp_path, monkeypatch, "own_files", "file.write")
    offer(monkeypatch, own="own_files:act")
    registry = find_effects([f"{file}:send"])
    found = registry.find("file.write")
    assert found is not None
    assert found.source == "own_files:act"
    assert "file.write" not in registry.builtin
    assert "file.read" in registry.builtin
    with pytest.raises(RefusedError, match="two handlers"):  # of one's own there is only one
        registry.add(handler("file.write")(lambda params, call: None))


def test_a_function_without_its_decorator_is_no_handler() -> None:
    plain: Any = len
    with pytest.raises(RefusedError, match="decorate the function with @handler") as refused:
        EffectRegistry().add(plain)
    assert refused.value.code == "INVALID_HANDLER"
    with pytest.raises(RefusedError, match=r"write @handler\(type\) above") as refused:
        handler(plain)
    assert refused.value.code == "INVALID_HANDLER"


def test_finding_effects_does_not_import_the_library_behind_http() -> None:
    code = "import sys, host; host.find_effects(); sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
