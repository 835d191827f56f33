"""The demo's programs: two edit one file at once, a third goes too far, confined and where nothing can confine them."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.repository.programs import PATIENCE_S, SHARED, Program, Programs, main
from worldprotocol.runs.command import confinement_support

WORKFLOW = Path(".github/workflows/ci.yml")


@pytest.fixture
def told() -> list[tuple[bool, str]]:
    return []


@pytest.fixture(params=["confined", "unconfined"])
def programs(request: pytest.FixtureRequest, tmp_path: Path, told: list[tuple[bool, str]]) -> Programs:
    """The programs of the demo, confined where the kernel can; else the first case is the second."""

    def check(holds: bool, sentence: str) -> None:
        told.append((holds, sentence))

    return Programs(tmp_path / "shared", check, unconfined=request.param == "unconfined")


@pytest.mark.requirement("KO-5.2", "KO-4")
@pytest.mark.slow
def test_two_programs_lose_no_entry_of_each_other(
    programs: Programs, told: list[tuple[bool, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    programs.edit_at_once()
    assert [sentence for holds, sentence in told if not holds] == []
    entries = [line for line in (programs.checkout / "CHANGES.rst").read_text().splitlines() if line.startswith("- ")]
    assert entries == [
        "- Blueprints can be nested.",
        "- Cookies are signed.",
        "- Sessions expire.",
        "- Signals are sent.",
    ]
    said = capsys.readouterr().out
    assert "Die" in said
    assert "Wait" in said
    assert "it must not wait; it asks again later" in said
    assert "only the old wait for the young" in said


@pytest.mark.requirement("KO-3", "KO-3.3", "KO-4")
@pytest.mark.slow
def test_what_a_third_did_beyond_its_scope_is_stopped_or_found_and_its_other_changes_are_given_back(
    programs: Programs, told: list[tuple[bool, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    programs.go_too_far()
    programs.tell_all()
    assert [sentence for holds, sentence in told if not holds] == []
    docs = [path.relative_to(SHARED / "checkout") for path in (SHARED / "checkout" / "docs").iterdir()]
    for page in docs:
        assert (programs.checkout / page).read_bytes() == (SHARED / "checkout" / page).read_bytes()
    assert sorted((programs.checkout / "docs").iterdir()) == sorted(programs.checkout / page for page in docs)
    unchanged = (programs.checkout / WORKFLOW).read_bytes() == (SHARED / "checkout" / WORKFLOW).read_bytes()
    assert unchanged is (programs.why_not is None)
    said = capsys.readouterr().out
    assert f"Agent attempted MUTATES on /{WORKFLOW} but declared nothing there." in " ".join(said.split())
    assert ("published" in said) is (programs.why_not is not None)


def test_they_are_confined_wherever_the_kernel_can(programs: Programs, request: pytest.FixtureRequest) -> None:
    wanted = "unconfined" not in request.node.name
    assert (programs.why_not is None) is (wanted and confinement_support().why_not is None)


def test_what_did_not_hold_is_told_and_ends_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Programs, "edit_at_once", lambda self: self._check(False, "nothing is lost"))
    monkeypatch.setattr(Programs, "go_too_far", lambda self: self._check(True, "it is stopped"))
    monkeypatch.setattr(Programs, "tell_all", lambda self: self.show("explain", "nothing"))
    assert main(tmp_path / "shared") == 1
    failed = [line.strip() for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert failed == ["FAILED nothing is lost", "FAILED worldctl explain ends with 1"]


def test_a_program_that_ends_too_early_is_told_with_what_it_said(tmp_path: Path) -> None:
    with Program(["sh", "-c", "echo no"], tmp_path) as program:
        with pytest.raises(RuntimeError, match="ended before it said 'read': no"):
            program.expect("read")
        assert program.wait() == 0
    assert PATIENCE_S > 0
