"""Pages and ``worldctl ... --json`` say the same: as many entries, and the same ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

import httpx
import pytest

from tests.cli.realm import CliRealm
from tests.pages.pages_of import PAGES_PATH, parsed, signed_in, signing
from tests.pages.records_of import founded_records
from tests.server.served import Served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with signing(founded_records(tmp_path_factory.mktemp("numbers")), "all") as running:
        yield running


@pytest.fixture(scope="module")
def pages(served: Served) -> Iterator[httpx.Client]:
    with signed_in(served, "all") as client:
        yield client


@pytest.fixture(scope="module")
def cli(served: Served) -> CliRealm:
    return CliRealm(served.place.folder)


def main(pages: httpx.Client, path: str) -> Element:
    """Return the main part of a page."""
    answer = pages.get(PAGES_PATH + path)
    assert answer.status_code == 200
    return next(parsed(answer.text).iter("main"))


def linked(root: Element, kind: str) -> list[str]:
    """Return the ids of the linked things of a kind, each once, in the order of the page."""
    pattern = re.compile(rf"{PAGES_PATH}/{kind}/([^/?#]+)")
    found = (pattern.match(one.get("href", "")) for one in root.iter("a"))
    return list(dict.fromkeys(one[1] for one in found if one is not None))


def words(root: Element) -> str:
    return " ".join("".join(root.itertext()).split())


def count(root: Element, heading: str) -> int:
    """Return the number that a heading shows."""
    found = next(one for one in root.iter() if one.tag in ("h1", "h2") and words(one).startswith(heading))
    return int(words(found).removeprefix(heading).split()[0].rstrip("+").replace(",", ""))


def rows(root: Element, name: str) -> list[list[str]]:
    """Return the texts of the cells of the table in a region."""
    region = next(one for one in root.iter("div") if one.get("aria-label") == name)
    body = next(region.iter("tbody"))
    return [[words(cell) for cell in row if cell.tag in ("td", "th")] for row in body.iter("tr")]


def test_the_inbox_has_the_entries_of_the_command(pages: httpx.Client, cli: CliRealm) -> None:
    told = [one["proposalId"] for one in cli("inbox", "--for", "all", "--json").json]
    page = main(pages, "/inbox")
    assert sorted(linked(page, "proposals")) == sorted(told)
    assert count(page, "Inbox") == len(told) > 1


def test_proposals_are_those_of_the_log(pages: httpx.Client, cli: CliRealm) -> None:
    told = [one["state"]["proposalId"] for one in cli("log", "--topic", "proposal.submitted", "--json").lines]
    assert sorted(linked(main(pages, "/proposals"), "proposals")) == sorted(told)
    assert len(told) == cli("verify", "--json").json["proposals"]
    for name in told:
        shown = cli("show", name, "--json").json
        assert shown["status"] in words(main(pages, f"/proposals/{name}"))


def test_worlds_are_those_of_the_command(pages: httpx.Client, cli: CliRealm) -> None:
    told = [one["worldId"] for one in cli("worlds", "--json").lines]
    assert sorted(linked(main(pages, "/worlds?depth=300"), "worlds")) == sorted(told)
    assert len(told) == cli("verify", "--json").json["worlds"]
    head = cli("show", "HEAD", "--json").json
    page = words(main(pages, "/worlds/HEAD"))
    assert head["worldId"] in page
    assert f"height {head['height']}, event {head['position']}" in page


def test_leases_and_waits_are_those_of_the_commands(pages: httpx.Client, cli: CliRealm) -> None:
    page = main(pages, "/leases")
    held = cli("lease", "list", "--json").json["leases"]
    waits = cli("waits", "--json").json["waits"]
    titles = {one.get("title", "") for one in page.iter("code")}
    assert {one["leaseId"] for one in held} <= titles
    assert count(page, "In force") == len(held) > 1
    assert count(page, "Waiting") == len(waits) == 1
    for one in held:
        assert one["resource"] in words(page)


def test_policies_are_those_of_the_commands(pages: httpx.Client, cli: CliRealm) -> None:
    page = main(pages, "/policies")
    told = cli("policy", "list", "--all", "--json").json
    shown = rows(page, "History of policies, newest first")
    assert [[cell.replace(",", "") for cell in row[:4]] for row in shown] == [
        [str(one["position"]), one["name"], one["event"], one["hash"][:12]] for one in reversed(told)
    ]
    in_force = [one for one in cli("policy", "list", "--json").json if one["adopted"]]
    assert [row[:2] for row in rows(page, "Policies in force")] == [
        [one["name"], one["adopted"][:12]] for one in in_force
    ]
    assert (count(page, "In force"), count(page, "History")) == (len(in_force), len(told))
    policy = main(pages, f"/policies/{in_force[0]['adopted']}")
    rules = cli("policy", "show", "limits", "--json").json["rules"]
    named = [row[0] for row in rows(policy, "Rules")]
    assert named == [one["id"] + one.get("description", "") for one in rules]
    shadows = cli("policy", "shadow", "show", "--json").json
    assert linked(
        next(one for one in policy.iter("section") if one.get("aria-labelledby") == "shadow"), "proposals"
    ) == [one["proposalId"] for one in reversed(shadows["disagreements"])]
    assert count(policy, "Shadow policies") == shadows["disagree"] > 0


def test_runs_are_those_of_the_command(pages: httpx.Client, cli: CliRealm) -> None:
    told = cli("runs", "--json").json
    page = main(pages, "/runs")
    assert linked(page, "runs") == [one["runId"] for one in told]
    assert count(page, "Runs") == len(told) == 2
    assert [row[4:6] for row in rows(page, "Runs, newest first")] == [
        [one["outcome"], str(one["exitCode"])] for one in told
    ]
    for one in told:
        shown = cli("show", one["runId"], "--json").json["verification"]
        page = main(pages, f"/runs/{one['runId']}")
        numbers = [count(page, name) for name in ("Declared", "Observed", "Changed content")]
        assert numbers == [len(shown[name]) for name in ("declared", "observed", "changes")]
        if shown["violations"]:
            assert count(page, "Violations") == len(shown["violations"])


def test_the_log_and_the_proofs_are_those_of_the_commands(pages: httpx.Client, cli: CliRealm) -> None:
    events = cli("log", "--json").lines
    page = main(pages, "/log")
    size = next(one for one in page.iter("span") if one.get("id") == "size")
    assert int(words(size).replace(",", "")) == len(events) == cli("verify", "--json").json["events"]
    shown = [one.get("id") for one in page.iter("tr") if one.get("id")]
    assert shown == [f"e{one['position']}" for one in reversed(events[-100:])]
    area = next(one for one in main(pages, "/proof?of=7").iter("textarea"))
    made = cli.folder / "receipt.json"
    cli("prove", "7", "-o", str(made))
    assert f'"leaf":"{events[6]["leaf"]}"' in (area.text or "")
    assert events[6]["leaf"] in made.read_text()
