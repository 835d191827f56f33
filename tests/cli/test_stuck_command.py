"""``worldctl stuck``, ``resolve`` and ``cancel``: a process was killed between an effect and its result."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import ROOT, CliRealm, Said, founded, sale

COURIER = ROOT / "tests/cli/courier.py"


@pytest.fixture(scope="module")
def vanished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a realm in which a parcel was handed over, and the process killed before the answer came."""
    realm = Inside(tmp_path_factory.mktemp("courier"))
    realm("init", "--domain", f"{COURIER}:courier", "--effects", f"{COURIER}:handlers")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    realm("actor", "add", "bob", "--kind", "human", "--auto-approve")
    os.mkfifo(realm.folder / "gate")
    running = realm.start("submit", "send", "--actor", "bob", "--input", '{"to": "Rome"}')
    assert running.stdout is not None
    assert running.stdout.readline() == "handed over\n"
    running.kill()
    running.communicate()
    (realm.folder / "gate").unlink()
    return realm.folder


@pytest.fixture(scope="module")
def template(vanished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return that realm after somebody found out that the sending is in doubt."""
    realm = Inside(tmp_path_factory.mktemp("doubt"))
    shutil.copytree(vanished, realm.folder, dirs_exist_ok=True)
    realm("settle")
    return realm.folder


@pytest.fixture
def realm(template: Path, tmp_path: Path) -> CliRealm:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Inside(tmp_path)


def in_doubt(realm: CliRealm) -> dict[str, Any]:
    told: dict[str, Any]
    (told,) = realm("stuck", "--json").json
    return told


def resolved(realm: CliRealm, *words: str, code: int = 0) -> Said:
    name = in_doubt(realm)["proposalId"]
    return realm("resolve", name, *words, "--by", "ann", "--reason", "I asked them", "--json", code=code)


def receipts(realm: CliRealm) -> Any:
    return realm("show", "HEAD", "--data", "--json").json["data"]["receipts"]


def sent(realm: CliRealm) -> list[str]:
    return (realm.folder / "sent.txt").read_text().splitlines()


@pytest.mark.slow
def test_looking_for_effects_in_doubt_changes_nothing_and_says_what_could_be_found(vanished: Path) -> None:
    realm = Inside(vanished)
    before = (vanished / "world.db").read_bytes()
    assert realm("stuck", "--json").json == []
    assert "1 effect is under way; `worldctl settle` finds out whose worker is gone." in realm("stuck").err
    assert (vanished / "world.db").read_bytes() == before


@pytest.mark.requirement("HC-journal")
def test_doctor_says_of_an_effect_in_doubt_what_settles_it(realm: CliRealm, vanished: Path) -> None:
    (told,) = [one for one in realm("doctor", "--json", code=1).json["checks"] if one["check"] == "unsettled"]
    assert told["found"].startswith("1 with effects in doubt; ")
    assert told["advice"] == (
        "`worldctl stuck` lists the effects in doubt; say what became of each with `worldctl resolve`"
    )
    before = Inside(vanished)("doctor", "--json", code=1).json["checks"]
    (told,) = [one for one in before if one["check"] == "unsettled"]
    assert told["advice"] == "if no process works on them, run `worldctl settle`"


@pytest.mark.requirement("HC-journal")
def test_an_effect_in_doubt_is_listed_with_what_the_other_side_can_be_asked_by(realm: CliRealm) -> None:
    told = in_doubt(realm)
    assert (told["actorId"], told["action"], told["effect"]) == ("bob", "send", "parcel.send")
    assert told["params"] == {"to": "Rome"}
    (line,) = sent(realm)
    assert line == f"Rome {told['idempotencyKey']}"
    shown = realm("stuck").out.splitlines()
    assert shown[0].split("\t") == ["proposal", "actor", "action", "effect", "since", "idempotency key"]
    assert shown[1].split("\t")[0] == told["proposalId"]
    assert len(sent(realm)) == 1  # nobody makes it again


@pytest.mark.requirement("HC-journal")
def test_what_is_known_to_have_happened_is_not_made_again(realm: CliRealm) -> None:
    told = resolved(realm, "--happened", "--result", '{"receipt": "from the counter"}').json
    assert told["status"] == "completed"
    assert receipts(realm) == ["from the counter"]
    assert len(sent(realm)) == 1
    assert realm("stuck").err.strip() == "No effect is in doubt."
    assert realm("stuck", "--json").json == []
    (event,) = realm("log", "--topic", "effect.resolved", "--json").lines
    assert (event["state"]["by"], event["state"]["reason"]) == ("ann", "I asked them")


@pytest.mark.requirement("HC-journal")
def test_what_is_known_not_to_have_happened_is_made_again(realm: CliRealm) -> None:
    told = resolved(realm, "--retry").json
    assert told["status"] == "completed"
    assert receipts(realm) == ["for Rome"]
    assert len(sent(realm)) == 2
    assert len({line.split()[1] for line in sent(realm)}) == 1  # under the same idempotency key


@pytest.mark.requirement("HC-journal")
def test_where_nobody_can_find_out_the_action_is_told_so(realm: CliRealm) -> None:
    told = resolved(realm, "--fail", code=1).json
    assert (told["status"], told["failure"]["code"]) == ("failed", "EFFECT_IN_DOUBT")
    assert receipts(realm) == []
    assert len(sent(realm)) == 1


@pytest.mark.requirement("HC-journal")
def test_an_execution_in_doubt_can_be_called_off(realm: CliRealm) -> None:
    name = in_doubt(realm)["proposalId"]
    told = realm("cancel", name[:30], "--by", "ann", "--reason", "not wanted any more", "--json").json
    assert (told["proposalId"], told["status"]) == (name, "failed")
    assert realm("stuck", "--json").json == []
    assert "[NOT_RUNNING]" in realm("cancel", name, "--by", "ann", "--reason", "again", code=1).err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "one of --happened, --retry and --fail"),
        (["--retry", "--fail"], 2, "one of --happened, --retry and --fail"),
        (["--retry", "--result", "1"], 2, "--result goes with --happened"),
        (["--happened", "--result", "{"], 2, "MALFORMED_JSON"),
        (["--retry", "--effect", "no-such"], 1, "NOT_IN_DOUBT"),
        (["--retry", "--by", "nobody"], 1, "UNKNOWN_ACTOR"),
        (["--retry", "--reason", " "], 1, "REASON_MISSING"),
    ],
)
def test_what_cannot_be_meant_resolves_nothing(realm: CliRealm, words: list[str], code: int, said: str) -> None:
    told = in_doubt(realm)
    given = ["--by", "ann", "--reason", "I asked them", *words]
    assert said in realm("resolve", told["proposalId"], *given, code=code).err
    assert in_doubt(realm)["requirementId"] == told["requirementId"]


def test_the_effect_and_the_proposal_can_be_named_by_their_beginnings(realm: CliRealm) -> None:
    told = in_doubt(realm)
    words = ("--effect", told["requirementId"][:8], "--happened", "--by", "ann", "--reason", "seen")
    assert "completed" in realm("resolve", told["proposalId"][:30], *words).out


@pytest.mark.slow
def test_what_is_not_in_doubt_cannot_be_resolved_or_called_off(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    assert realm("stuck").err.strip() == "No effect is in doubt."
    done = realm("submit", "--intents", "-", "--json", given=sale("ann") + sale("kid"), code=4).lines
    ended, waiting = (one["proposalId"] for one in done)
    telling = ("--by", "ann", "--reason", "because")
    assert "[NOT_IN_DOUBT]" in realm("resolve", ended, "--retry", *telling, code=1).err
    assert "[NOT_RUNNING]" in realm("cancel", ended, *telling, code=1).err
    assert len(realm("inbox", "--json").json) == 1
    withdrawn = realm("cancel", waiting[:30], *telling, "--json").json
    assert (withdrawn["proposalId"], withdrawn["status"]) == (waiting, "superseded")
    assert realm("inbox", "--json").json == []
