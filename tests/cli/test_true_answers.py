"""Commands say what is so: exit codes of what waits, who is asked, and a token as it was printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_people_commands import realm, template
from worldprotocol.cli.support.rendering.proposals import exit_code_of
from worldprotocol.client.token_file import token_in

__all__ = ["realm", "template"]


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], 0),
        ([{"status": "completed"}], 0),
        ([{"status": "completed"}, {"status": "evaluating"}], 4),
        ([{"status": "executing"}], 4),
        ([{"status": "evaluating"}, {"status": "approved", "held": "policy changed: house"}], 5),
        ([{"status": "approved", "held": "policy changed: house"}, {"status": "refused"}], 1),
    ],
)
def test_the_exit_code_is_that_of_a_finding_then_of_a_held_then_of_a_waiting_proposal(
    results: list[dict[str, str]], code: int
) -> None:
    assert exit_code_of(results) == code


def test_a_command_after_a_proposal_that_waits_for_people_is_not_run(realm) -> None:
    given = ("submit", "sell", "--actor", "bot", "--input", '{"item": "tea"}')
    realm(*given, code=4)
    realm(*given, "--wait", "0.1", code=4)


def test_an_inbox_for_one_person_says_that_it_is_empty_for_that_person(realm) -> None:
    realm("submit", "sell", "--actor", "bot", "--input", '{"item": "tea"}', code=4)
    said = realm("inbox", "--for", "kid").err
    assert said.startswith("Nothing waits for kid. ")
    assert "for others" in said


def test_the_whole_output_of_token_create_is_a_token_file(tmp_path: Path) -> None:
    file = tmp_path / "bot.token"
    file.write_text("wpt_abc\ntoken 01 of bot, for 90 days; it is not shown again.\n")
    assert token_in(file) == "wpt_abc"


def test_abstaining_is_offered_for_votes_alone(realm) -> None:
    said = realm("decide", "--help").out
    assert "{approve|reject|narrow|ask|reply|delegate|escalate}" in said
    assert "In a vote, a voter may also abstain." in " ".join(said.split())
    assert "abstain" not in realm("decide", "01", "yes", "--by", "ann", code=2).err
    asked = realm("submit", "sell", "--actor", "bot", "--input", '{"item": "tea"}', "--json", code=4).json["proposalId"]
    assert "This question has no vote" in realm("decide", asked, "abstain", "--by", "ann", code=1).err
