"""Built-in effects on files: what they do, what they refuse, and that repeating them does nothing twice."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure
from host.builtin.files import MAX_ENTRIES
from host.effect_answers import EffectPlace
from host.observation.audit import Interception
from host.observation.operations import Operations
from host.observation.session_watch import Watch
from tests.host.effect_calls import HANDLERS, Files, make
from world.errors import RefusedError
from world.klis.observation import Declaration
from world.klis.predicate import read_predicate
from world.klis.resources.resource_reading import read_resource
from world.model.snapshot import Requirement

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path / "root")
    yield made
    made.workspace.close()


def code_of(answer: Any) -> str:
    assert isinstance(answer, EffectFailure), answer
    return answer.code


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- what they do ----------------------------------------------------------------------------------


def test_a_written_file_can_be_read_by_either_form_of_its_path(files: Files) -> None:
    wrote = files.make("file.write", path="/a.txt", text="täglich")
    data = "täglich".encode()
    assert wrote == {"path": "/a.txt", "size": len(data), "sha256": sha(data), "created": True}
    read = files.make("file.read", path="FILE:/a.txt")
    assert read == {
        "path": "/a.txt",
        "offset": 0,
        "text": "täglich",
        "size": len(data),
        "sha256": sha(data),
        "next": None,
    }
    assert files.make("file.write", path="/a.txt", text="")["created"] is False
    assert (files.root / "a.txt").read_bytes() == b""


def test_bytes_travel_as_base64(files: Files) -> None:
    data = bytes(range(256))
    files.make("file.create", path="/b", base64=base64.b64encode(data).decode(), mode="640")
    assert (files.root / "b").read_bytes() == data
    assert (files.root / "b").stat().st_mode & 0o777 == 0o640
    assert base64.b64decode(files.make("file.read", path="/b", encoding="base64")["base64"]) == data
    assert code_of(files.make("file.read", path="/b")) == "FILE_NOT_TEXT"


def test_a_file_is_read_in_pieces_that_cut_no_character(files: Files) -> None:
    (files.root / "a").write_text("aäöü€")
    pieces, at = [], 0
    while at is not None:
        piece = files.make("file.read", path="/a", offset=at, limit=4)
        pieces.append(piece["text"])
        at = piece["next"]
    assert "".join(pieces) == "aäöü€"
    assert len(pieces) > 1


def test_what_fits_into_no_result_is_told_by_size_and_hash(files: Files) -> None:
    data = b"x" * 2_000_000
    (files.root / "big").write_bytes(data)
    answer = files.make("file.read", path="/big")
    assert code_of(answer) == "EFFECT_RESULT_TOO_LARGE"
    assert answer.context == {"path": "/big", "size": len(data), "sha256": sha(data)}
    (files.root / "big").write_bytes(b"\x01" * 500_000)  # six characters each in JSON
    assert code_of(files.make("file.read", path="/big")) == "EFFECT_RESULT_TOO_LARGE"
    assert files.make("file.read", path="/big", limit=1000)["next"] == 1000


def test_every_answer_can_be_recorded(files: Files) -> None:
    (files.root / "a\n\x01\udcff").write_bytes(b"\x00" * 100_000)
    (files.root / "link").symlink_to("nowhere")
    place = EffectPlace(Requirement("0" * 64, "file.read", {}, "act", "n"), 1)
    for answer in (
        files.make("file.list", path="/", recursive=True),
        files.make("file.read", path="/link"),
        files.make("file.read", path=files.make("file.list", path="/")["entries"][0]["path"]),
    ):
        result = place.read(answer)
        assert result.error is None or result.error.code == "FILE_THROUGH_LINK"


def test_appending_adds_at_the_end_and_makes_what_is_missing(files: Files) -> None:
    first = files.make("file.append", path="/log", text="one\n")
    assert (first["offset"], first["size"], first["created"]) == (0, 4, True)
    second = files.make("file.append", path="/log", text="two\n")
    assert (second["offset"], second["size"], second["created"]) == (4, 8, False)
    assert (files.root / "log").read_text() == "one\ntwo\n"


def test_what_must_not_exist_is_made_once(files: Files) -> None:
    files.make("file.create", path="/a", text="1")
    assert code_of(files.make("file.create", path="/a", text="1")) == "FILE_EXISTS"
    assert code_of(files.make("file.mkdir", path="/a", parents=True)) == "FILE_EXISTS"
    assert (files.root / "a").read_text() == "1"


def test_deleting_takes_a_file_an_empty_folder_or_a_tree(files: Files) -> None:
    (files.root / "a").write_text("1")
    (files.root / "d/e").mkdir(parents=True)
    (files.root / "d/f").write_text("1")
    assert files.make("file.delete", path="/a") == {"path": "/a", "deleted": True}
    assert code_of(files.make("file.delete", path="/a")) == "FILE_NOT_FOUND"
    assert files.make("file.delete", path="/a", missingOk=True) == {"path": "/a", "deleted": False}
    assert code_of(files.make("file.delete", path="/d")) == "FILE_NOT_EMPTY"
    assert files.make("file.delete", path="/d/e")["deleted"]
    assert files.make("file.delete", path="/d", tree=True)["deleted"]
    assert list(files.root.glob("[!.]*")) == []


def test_a_link_is_deleted_itself_and_not_what_it_leads_to(files: Files, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("1")
    (files.root / "link").symlink_to(outside)
    assert files.make("file.delete", path="/link", tree=True)["deleted"]
    assert (outside / "kept").exists()


def test_renaming_replaces_only_where_that_is_said(files: Files) -> None:
    (files.root / "a").write_text("a")
    (files.root / "b").write_text("b")
    assert code_of(files.make("file.rename", from_="/a", to="/b")) == "FILE_EXISTS"
    assert code_of(files.make("file.rename", from_="/no", to="/c")) == "FILE_NOT_FOUND"
    assert files.make("file.rename", from_="/a", to="/b", replace=True) == {"from": "/a", "to": "/b"}
    assert (files.root / "b").read_text() == "a"
    assert not (files.root / "a").exists()


def test_folders_are_made_with_those_above_them_where_that_is_said(files: Files) -> None:
    assert code_of(files.make("file.mkdir", path="/x/y")) == "FILE_NOT_FOUND"
    assert files.make("file.mkdir", path="/x/y", parents=True) == {"path": "/x/y", "created": True}
    assert files.make("file.mkdir", path="/x/y", parents=True) == {"path": "/x/y", "created": False}
    assert code_of(files.make("file.mkdir", path="/x/y")) == "FILE_EXISTS"


def test_a_listing_tells_names_kinds_and_sizes_but_nothing_of_the_engine(files: Files) -> None:
    files.make("file.write", path="/b", text="123")
    (files.root / "d").mkdir()
    (files.root / "d/new\nline").write_text("")
    (files.root / "link").symlink_to("b")
    assert (files.root / ".klock").is_dir()
    assert files.make("file.list", path="/")["entries"] == [
        {"path": "/b", "kind": "file", "size": 3},
        {"path": "/d", "kind": "dir"},
        {"path": "/link", "kind": "link"},
    ]
    (entry,) = files.make("file.list", path="/d")["entries"]
    assert entry == {"path": "/d/new%0Aline", "kind": "file", "size": 0}
    assert files.make("file.read", path=entry["path"])["size"] == 0  # names told are names taken
    assert len(files.make("file.list", path="/", recursive=True)["entries"]) == 4
    for recursive in (True, False):
        assert code_of(files.make("file.list", path="/b", recursive=recursive)) == "FILE_NOT_A_FOLDER"


def test_a_listing_has_a_limit(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ENTRIES == 10_000
    monkeypatch.setattr("host.builtin.files.MAX_ENTRIES", 3)
    for name in "abcd":
        (files.root / name).touch()
    assert code_of(files.make("file.list", path="/")) == "EFFECT_RESULT_TOO_LARGE"


# --- what they refuse ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "params", "path"),
    [
        ("file.read", {}, "$.path"),
        ("file.read", {"path": "relative"}, "$.path"),
        ("file.read", {"path": "/a/*"}, "$.path"),
        ("file.read", {"path": "/a\nb"}, "$.path"),
        ("file.read", {"path": "/a", "limit": "3"}, "$.limit"),
        ("file.read", {"path": "/a", "offset": -1}, "$.offset"),
        ("file.read", {"path": "/a", "colour": 1}, "$.colour"),
        ("file.write", {"path": "/a"}, "$"),
        ("file.write", {"path": "/a", "text": "1", "base64": ""}, "$"),
        ("file.write", {"path": "/a", "base64": "%"}, "$"),
        ("file.write", {"path": "/a", "text": "1", "mode": "999"}, "$.mode"),
        ("file.rename", {"old": "/a", "new": "/b"}, "$.from"),
        ("file.delete", {"path": "/a", "missing_ok": True}, "$.missing_ok"),
    ],
)
def test_wrong_parameters_are_named_before_anything_is_touched(
    files: Files, effect: str, params: dict[str, Any], path: str
) -> None:
    answer = make(effect, params, files.workspace)
    assert code_of(answer) == "EFFECT_INVALID_INPUT"
    assert path in [fault["path"] for fault in answer.context["faults"]]
    assert list(files.root.iterdir()) == []


@pytest.mark.parametrize(
    "effect", ["file.read", "file.write", "file.append", "file.create", "file.delete", "file.mkdir"]
)
def test_nothing_outside_of_the_workspace_is_reached(files: Files, tmp_path: Path, effect: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("kept")
    (files.root / "absolute").symlink_to(outside)
    (files.root / "up").symlink_to("../outside")
    text: dict[str, Any] = {"text": "changed"} if effect in ("file.write", "file.append", "file.create") else {}
    for path in ("/absolute/f", "/up/f", "/absolute/new", "/up/new"):
        assert code_of(files.make(effect, path=path, **text)) in ("LINK_OUT_OF_WORKSPACE", "OUTSIDE_WORKSPACE")
    assert code_of(files.make(effect, path="/.klock/effects/x", **text)) == "PRIVATE_PATH"
    files.make(effect, path="/../../outside/f", **text)  # stays at the root: it is /outside/f
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("f", "kept")]


def test_a_name_that_leads_to_another_one_is_refused_because_that_was_not_declared(files: Files) -> None:
    (files.root / "d").mkdir()
    (files.root / "d/f").write_text("kept")
    (files.root / "link").symlink_to("d/f")
    (files.root / "folder").symlink_to("d")
    for path, target in (("/link", "/d/f"), ("/folder/f", "/d/f"), ("/folder/new", "/d/new")):
        for effect in ("file.read", "file.write", "file.append", "file.create"):
            params: dict[str, Any] = {} if effect == "file.read" else {"text": "changed"}
            answer = files.make(effect, path=path, **params)
            assert code_of(answer) == "FILE_THROUGH_LINK"
            assert answer.context == {"path": path, "target": target}
    assert code_of(files.make("file.list", path="/folder")) == "FILE_THROUGH_LINK"
    assert code_of(files.make("file.delete", path="/folder/f")) == "FILE_THROUGH_LINK"
    assert code_of(files.make("file.rename", from_="/folder/f", to="/x")) == "FILE_THROUGH_LINK"
    assert files.make("file.rename", from_="/link", to="/other")["to"] == "/other"  # the link itself
    assert files.make("file.delete", path="/other")["deleted"]
    assert [path.read_text() for path in (files.root / "d").iterdir()] == ["kept"]


@pytest.mark.requirement("KO-2.1")
def test_how_an_effect_does_its_work_is_nothing_that_its_session_observes(files: Files) -> None:
    watch = Watch(Declaration("agent", "session", []))
    with Interception(watch, Operations(files.workspace)):
        assert files.make("file.write", path="/a", text="1")["created"]
        assert files.make("file.delete", path="/a")["deleted"]
    assert watch.observations == ()


def test_a_pipe_is_not_waited_for(files: Files) -> None:
    os.mkfifo(files.root / "pipe")
    assert code_of(files.make("file.read", path="/pipe")) == "FILE_NOT_REGULAR"
    assert code_of(files.make("file.append", path="/pipe", text="1")) == "FILE_NOT_REGULAR"


def test_a_folder_is_no_file_and_the_root_stays(files: Files) -> None:
    (files.root / "d").mkdir()
    assert code_of(files.make("file.read", path="/d")) == "FILE_IS_A_FOLDER"
    assert code_of(files.make("file.write", path="/d", text="1")) == "FILE_IS_A_FOLDER"
    assert code_of(files.make("file.append", path="/", text="1")) == "FILE_IS_A_FOLDER"
    assert code_of(files.make("file.write", path="/d/x/y", text="1")) == "FILE_NOT_FOUND"
    for effect, told in (("file.delete", {"path": "/", "tree": True}), ("file.rename", {"from": "/", "to": "/d/x"})):
        assert code_of(make(effect, told, files.workspace, effect)) == "OUTSIDE_WORKSPACE"


def test_effects_on_files_need_a_workspace() -> None:
    for effect, params in (("file.read", {"path": "/a"}), ("file.append", {"path": "/a", "text": "1"})):
        assert code_of(make(effect, params)) == "EFFECT_NO_WORKSPACE"


def test_a_cancelled_effect_changes_nothing_and_a_lost_lease_passes_through(files: Files) -> None:
    (files.root / "a").write_text("a")

    def lost() -> None:
        raise RefusedError("LEASE_LOST", "gone")

    for effect, params in (
        ("file.write", {"path": "/a", "text": "1"}),
        ("file.append", {"path": "/a", "text": "1"}),
        ("file.create", {"path": "/b", "text": "1"}),
        ("file.delete", {"path": "/a"}),
        ("file.rename", {"from": "/a", "to": "/b"}),
        ("file.mkdir", {"path": "/b"}),
    ):
        cancelled = make(effect, params, files.workspace, effect, is_cancelled=lambda: True)
        assert code_of(cancelled) == "EFFECT_CANCELLED"
        with pytest.raises(RefusedError, match="gone"):
            make(effect, params, files.workspace, effect, check=lost)
    assert [(path.name, path.read_text()) for path in files.root.glob("[!.]*")] == [("a", "a")]


def test_a_note_that_cannot_be_written_keeps_the_effect_from_beginning(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = files.make("file.write", told={"scratch": tmp_path / "file" / "x"}, path="/a", text="1")
    assert code_of(answer) == "FILE_NOTE_FAILED"
    assert not (files.root / "a").exists()


# --- what they touch -------------------------------------------------------------------------------


@pytest.mark.requirement("KO-2.1")
@pytest.mark.parametrize(
    ("effect", "params", "triples"),
    [
        ("file.read", {"path": "/b.txt"}, [("CONSUMES", "FILE:/b.txt")]),
        ("file.list", {"path": "/"}, [("CONSUMES", "FILE:/")]),
        ("file.list", {"path": "/c", "recursive": True}, [("CONSUMES", "FILE:/c/*")]),
        ("file.write", {"path": "FILE:/x/../a.txt", "text": ""}, [("MUTATES", "FILE:/a.txt")]),
        ("file.append", {"path": "/a.txt", "text": ""}, [("MUTATES", "FILE:/a.txt")]),
        ("file.create", {"path": "/a.txt", "text": ""}, [("PROVIDES", "FILE:/a.txt")]),
        ("file.mkdir", {"path": "/d/"}, [("PROVIDES", "FILE:/d")]),
        ("file.delete", {"path": "/c"}, [("DELETES", "FILE:/c")]),
        ("file.delete", {"path": "/c", "tree": True}, [("DELETES", "FILE:/c/*")]),
        ("file.delete", {"path": "/", "tree": True}, [("DELETES", "FILE:/*")]),
        ("file.rename", {"from": "/a", "to": "/b"}, [("RENAMES", "FILE:/a"), ("PROVIDES", "FILE:/b")]),
    ],
)
def test_an_effect_tells_what_it_touches_in_canonical_form(
    effect: str, params: dict[str, Any], triples: list[tuple[str, str]]
) -> None:
    told = HANDLERS[effect].triples(params)
    assert told == triples
    assert all(read_predicate(predicate) and read_resource(resource) for predicate, resource in told)
