"""Receipts that are checked by the script of the page of proofs, in a real browser and without a connection."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.log.test_receipts import KEY, ORIGIN, WITNESS, every_value, replaced, signed, subjects
from tests.pages.pages_of import PAGES_PATH, signing
from tests.server.served import ORDER, Served, founded
from world.model.canonical_json import canonical_bytes
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.proofs.checkpoint import Trusted, checkpoint_of
from worldprotocol.export.proofs.note import SigningKey
from worldprotocol.export.proofs.receipt import Subject, check_proof, make_consistency, make_receipt

pytestmark = pytest.mark.slow

GOLDEN = sorted((Path(__file__).resolve().parents[1] / "golden").glob("*.jsonl"))
VKEYS = [KEY.verifier.to_text(), WITNESS.verifier.to_text()]
SIGNED_BY_BOTH = {"keys": VKEYS, "origin": None, "head": None}
CHECK = """async ([texts, trust]) => {
  const { check } = await import("/realms/-/receipt.js");
  const bytes = (text) => Uint8Array.from(text, (one) => one.charCodeAt(0));
  const results = [];
  for (const text of texts) {
    try { results.push(await check(bytes(text), trust)); } catch (error) { results.push(error.message); }
  }
  return JSON.parse(JSON.stringify(results, (_, value) => typeof value === "bigint" ? Number(value) : value));
}"""
FLIP = """async ([text, trust]) => {
  const { check, NotProven } = await import("/realms/-/receipt.js");
  const whole = Uint8Array.from(text, (one) => one.charCodeAt(0));
  const wrong = [];
  let refused = 0;
  const attempt = async (bytes, name) => {
    try { await check(bytes, trust); wrong.push(name); } catch (error) {
      if (error instanceof NotProven && error.message) refused += 1; else wrong.push(`${name}: ${error}`);
    }
  };
  for (let at = 0; at < whole.length; at += 1) {
    for (let bit = 0; bit < 8; bit += 1) {
      whole[at] ^= 1 << bit;
      await attempt(whole, `bit ${bit} of byte ${at}`);
      whole[at] ^= 1 << bit;
    }
  }
  for (let size = 0; size < whole.length - 1; size += 1) await attempt(whole.slice(0, size), `the first ${size} bytes`);
  return [refused, wrong];
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with signing(founded(tmp_path_factory.mktemp("proof")), "ann") as running:
        assert running.submit("all", ORDER).status_code == 200
        yield running


@pytest.fixture(scope="module")
def tab(served: Served, browser: Any) -> Iterator[Any]:
    """Return the page of proofs, loaded; the network is cut afterwards."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(served.links["ann"])
    page.locator("button.yes").press("Enter")
    page.wait_for_url("**/inbox")
    page.goto(f"{served.url}{PAGES_PATH}/proof")
    expect(page.locator("#check")).to_be_enabled()
    context.set_offline(True)
    yield page
    context.close()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Realm]]:
    """Return the golden logs, imported."""
    folder = tmp_path_factory.mktemp("golden")
    opened = {}
    for path in GOLDEN:
        address = str(folder / f"{path.stem}.db")
        import_log(io.BytesIO(path.read_bytes()), address)
        opened[path.stem] = Realm.open_read_only(address)
    yield opened
    for one in opened.values():
        one.close()


def latin(data: bytes) -> str:
    """Return bytes as a text with one character for each, which the browser turns back."""
    return data.decode("latin-1")


def asked(tab: Any, files: list[bytes], trust: dict[str, Any] = SIGNED_BY_BOTH) -> list[Any]:
    """Return what the browser says of files: the result, or the reason of the refusal."""
    found: list[Any] = tab.evaluate(CHECK, [[latin(one) for one in files], trust])
    return found


@pytest.mark.requirement("CARD-audit")
def test_receipts_of_all_golden_logs_are_proven_in_the_browser(tab: Any, logs: dict[str, Realm]) -> None:
    kinds = set()
    for realm in logs.values():
        checkpoint = signed(realm)
        files = [(subject, make_receipt(realm.log, subject, checkpoint)) for subject in subjects(realm)]
        for (subject, data), found in zip(files, asked(tab, [data for _, data in files]), strict=True):
            proof = check_proof(data, Trusted((KEY.verifier, WITNESS.verifier)))
            assert isinstance(found, dict), (subject, found)
            assert proof.event is not None
            assert (found["kind"], found["name"], found["position"]) == (subject.kind, subject.name, subject.position)
            assert (found["topic"], found["origin"]) == (proof.event["topic"], ORIGIN)
            assert (found["head"], found["proven"]) == (str(checkpoint.head), True)
            assert found["signed"] == [ORIGIN, WITNESS.name]
            kinds.add(subject.kind)
    assert kinds >= {"proposal", "intent", "decision", "world", "verdict", "event"}


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("kind", ["world", "event"])
def test_no_flipped_bit_and_no_cut_is_proven_in_the_browser(tab: Any, logs: dict[str, Realm], kind: str) -> None:
    realm = logs["gate"]
    subject = next(one for one in subjects(realm) if one.kind == kind)
    data = make_receipt(realm.log, subject, signed(realm))
    refused, wrong = tab.evaluate(FLIP, [latin(data), SIGNED_BY_BOTH])
    assert wrong == []
    assert refused == len(data) * 9 - 1
    (whole, unended) = asked(tab, [data, data[:-1]])  # a paste may lack the newline at the end
    assert whole == unended
    assert whole["proven"]


@pytest.mark.requirement("CARD-audit")
def test_no_field_can_be_something_else_in_the_browser(tab: Any, logs: dict[str, Realm]) -> None:
    others: list[Any] = [None, True, 0, -1, 2**53 - 1, "", "x", "0" * 64, [], {}, ["0" * 64]]
    realm = logs["ledger"]
    changed = []
    for subject in subjects(realm):
        wire = json.loads(make_receipt(realm.log, subject, signed(realm)))
        paths = list(every_value(wire))
        changed += [
            canonical_bytes(made) + b"\n"
            for path in paths
            for other in others
            if (made := replaced(wire, path, other)) != wire
        ]
    results = asked(tab, changed)
    assert [one for one in results if not isinstance(one, str)] == []
    assert len(results) > 500


@pytest.mark.requirement("CARD-audit")
def test_refusals_name_the_reason(tab: Any, logs: dict[str, Realm]) -> None:
    realm = logs["garden"]
    data = make_receipt(realm.log, Subject("event", "3", 3), signed(realm))
    other = SigningKey.generate(ORIGIN).verifier.to_text()
    stranger = SigningKey.generate("example.com/other").verifier.to_text()

    def reason(given: bytes, **trust: Any) -> str:
        (found,) = asked(tab, [given], SIGNED_BY_BOTH | trust)
        assert isinstance(found, str), found
        return found

    assert f"belongs to the log {ORIGIN}, not to example.com/other" in reason(data, origin="example.com/other")
    assert "has not signed it with the key" in reason(data, keys=[other])
    assert f"belongs to the log {ORIGIN}" in reason(data, keys=[stranger])
    assert "has not signed it" in reason(data, keys=[*VKEYS, stranger], origin=ORIGIN)
    assert "is not a verifier key" in reason(data, keys=["nonsense"])
    name, key_id, key = VKEYS[0].split("+", 2)
    assert "its id does not follow from it" in reason(data, keys=[f"{name}+{key_id[::-1]}+{key}"])
    assert "the tree head is" in reason(data, head=f"9:{'0' * 64}")
    assert "cut off" in reason(data[: len(data) // 2])
    content = data.replace(b"world.sealed", b"world.seaied")
    assert "its content was changed" in reason(content)
    wire = json.loads(data)
    wire["inclusion"]["path"].reverse()
    assert "does not lead from the event" in reason(canonical_bytes(wire) + b"\n")
    wire["inclusion"]["path"].pop()
    assert "too short" in reason(canonical_bytes(wire) + b"\n")
    spaced = json.dumps(json.loads(data), sort_keys=True).encode() + b"\n"
    assert "one form that is allowed" in reason(spaced)
    proof = make_consistency(realm.log, signed(realm, 5), signed(realm))
    assert "the fields should be" in reason(proof)


@pytest.mark.requirement("CARD-audit")
def test_without_a_key_a_receipt_is_consistent_and_proves_nothing(tab: Any, logs: dict[str, Realm]) -> None:
    realm = logs["garden"]
    head = realm.log.head()
    data = make_receipt(realm.log, Subject("event", "3", 3), checkpoint_of(head, ORIGIN, []))
    trust: dict[str, Any] = {"keys": [], "origin": None, "head": None}
    (unsigned,) = asked(tab, [data], trust)
    assert (unsigned["proven"], unsigned["signed"]) == (False, [])
    (known,) = asked(tab, [data], trust | {"head": str(head)})
    assert known["proven"]
    (named,) = asked(tab, [data], trust | {"keys": VKEYS[:1]})
    assert "has not signed it" in named


def test_the_form_says_what_was_checked_and_with_which_key(tab: Any, logs: dict[str, Realm]) -> None:
    realm = logs["garden"]
    data = make_receipt(realm.log, Subject("event", "3", 3), signed(realm)).decode()
    result = tab.locator("#result")

    def pressed(text: str, key: str, origin: str = "", head: str = "") -> str:
        for name, value in (("receipt", text), ("key", key), ("origin", origin), ("head", head)):
            tab.locator(f"#{name}").fill(value)
        tab.locator("#check").click()
        expect(result).to_have_attribute("data-state", re.compile("proven|consistent|refused"))
        return str(result.inner_text())

    words = pressed(data, VKEYS[0])
    assert f"Proven: Event 3 is in the log {ORIGIN}." in words
    assert KEY.verifier.public.hex() in words
    assert "You gave this key." in words
    assert f"Not checked: signatures by {WITNESS.name}." in words
    assert str(realm.log.head()) in words
    assert pressed(data[:-40], VKEYS[0]).startswith("Not proven: it is not whole JSON")
    assert "not to example.com/other" in pressed(data, VKEYS[0], origin="example.com/other")
    words = pressed(data, "")
    assert words.startswith("Consistent, but not proven: Event 3.")
    assert "none was checked, because no key was given" in words
    assert "Proven: Event 3" in pressed(data, "", head=str(realm.log.head()))
    assert pressed("", "").startswith("Not proven")
