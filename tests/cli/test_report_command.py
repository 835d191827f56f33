"""``worldctl report``: one HTML page about a log, or its figures, from a log that it only reads."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli.realm import CliRealm, founded, sale


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    """A realm with a proposal that completed, one that failed, and one that waits."""
    realm = founded(tmp_path_factory.mktemp("report"))
    realm("submit", "--intents", "-", given=sale("ann") + sale("ann", "salt", 2) + sale("kid"), code=1)
    return realm


def content(folder: Path) -> dict[str, str]:
    """Return the hash of every file that holds the log; readers may make and remove others beside it."""
    return {
        path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.suffix in (".db", ".toml")
    }


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_a_page_is_written_and_the_log_stays_as_it_is(realm: CliRealm) -> None:
    before = content(realm.folder)
    said = realm("report", "-o", "page.html")
    page = (realm.folder / "page.html").read_text(encoding="utf-8")
    assert said.out.startswith("page.html: ")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert content(realm.folder) == before
    assert realm("report").out == page
    assert realm("report", "-o", "-").out == page


def test_a_file_that_is_there_is_replaced_only_when_told_to(realm: CliRealm) -> None:
    (realm.folder / "there.html").write_text("mine")
    assert "--force replaces it" in realm("report", "-o", "there.html", code=2).err
    assert (realm.folder / "there.html").read_text() == "mine"
    realm("report", "-o", "there.html", "--force")
    assert (realm.folder / "there.html").read_text().startswith("<!DOCTYPE html>")
    assert "cannot be written" in realm("report", "-o", "no/such/folder.html", code=2).err
    assert not list(realm.folder.glob("*.part"))


def test_the_figures_are_printed_as_json(realm: CliRealm) -> None:
    told = realm("report", "--json").json
    assert told["proposals"]["submitted"] == len(told["listed"]) == 3
    assert told["proposals"]["endings"] == {"completed": 1, "failed": 1}
    assert [one["actor"] for one in told["listed"]] == ["kid", "ann", "ann"]
    written = realm("report", "--json", "-o", "json.html").json
    assert written["bytes"] == (realm.folder / "json.html").stat().st_size
    assert written["head"] == told["head"]
    assert "listed" not in written


def test_a_report_is_about_the_log_as_it_stood_and_counts_what_lies_in_its_time(realm: CliRealm) -> None:
    whole = realm("report", "--json").json
    worlds = realm("worlds", "--json").lines
    first = realm("report", "--json", "--at", worlds[1]["worldId"][:12]).json
    assert first["proposals"]["endings"] == {"completed": 1}
    assert first["head"]["size"] < whole["head"]["size"]
    later = realm("report", "--json", "--since", "2999-01-01T00:00:00Z").json
    assert later["events"]["counted"] == 0
    assert later["lineage"]["worlds"] == whole["lineage"]["worlds"]
    assert (
        realm("report", "--json", "--since", "1970-01-02T00:00:00Z", "--until", "2999-01-01").json["events"]
        == whole["events"]
    )
    nothing = realm("report", "--json", "--until", "1970-01-02T00:00:00Z").json
    assert (nothing["head"]["size"], nothing["lineage"]["worlds"]) == (0, 0)
    assert "is not a time" in realm("report", "--since", "soon", code=2).err
    assert "names no point" in realm("report", "--at", "zzz", code=1).err


@pytest.mark.requirement("KM-7.3")
@pytest.mark.slow
def test_hidden_events_are_counted_nowhere(realm: CliRealm) -> None:
    page = realm("report", "--redact", "inputs", "--redact", "actors").out
    assert ">ann<" not in page
    assert ">sell<" not in page
    told = realm("report", "--json", "--redact", "actors").json
    assert told["redacted"]["rules"] == ["actors"]
    assert told["redacted"]["hidden"] + told["events"]["counted"] == told["head"]["size"]
    assert "is not a redaction rule" in realm("report", "--redact", "names", code=2).err
    for asked in (["--since", "1h ago"], ["--until", "2030-01-01"], ["--at", "main"], ["--at", "01"]):
        assert "give --at a position" in realm("report", "--redact", "actors", *asked, code=2).err
    assert realm("report", "--redact", "actors", "--at", "5", "--json").json["window"]["upto"] == 5
