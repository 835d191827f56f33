"""Every command that looks says the same of a log in PostgreSQL as of the same log in a SQLite file."""

from __future__ import annotations

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import ROOT
from world.events.proposal_events import ProposalJudged, ProposalSubmitted
from world.events.realm_events import WorldSealed
from worldprotocol import Realm

CONFIG = (
    'domain = "tests.golden.garden:garden"\npolicies = ["tests.golden.garden:rules"]\n'
    'projections = ["tests.golden.garden:sensor"]\n'
)
LOOKING = [
    ("log",),
    ("--json", "log", "--redact", "actors"),
    ("--json", "inbox"),
    ("--json", "runs"),
    ("--json", "stuck"),
    ("--json", "waits"),
    ("--json", "actions", "--actor", "ann"),
    ("--json", "state", "--at", "{old}"),
    ("show", "{world}"),
    ("--json", "show", "{proposal}"),
    ("--json", "diff", "{old}", "{world}"),
    ("--json", "bisect", "--path", "beds.roof.what", "--becomes", "thyme"),
    ("trace", "{proposal}"),
    ("--json", "blame"),
    ("explain", "{judged}"),
    ("worlds",),
    ("--json", "waits", "--at", "{old}"),
    ("--json", "runs", "--at", "60"),
    ("--json", "log", "--at", "60", "--status", "completed"),
    ("explain", "{judged}", "--at", "60"),
    ("trace", "{judged}", "--at", "60"),
    ("--json", "actions", "--at", "60"),
    ("--json", "branch", "list"),
    ("--json", "actor", "list"),
    ("--json", "policy", "list"),
    ("--json", "lease", "list"),
    ("--json", "replay"),
    ("--json", "verify"),
    ("--json", "recheck"),
    ("--json", "whatif", "--from", "{old}", "--drop", "{judged}"),
    ("--json", "prove", "{world}"),
    ("--json", "report"),
    ("export",),
]
FINDING = {"diff", "whatif"}
"""Commands that find something here, and say so by their exit code."""


@pytest.fixture(scope="module")
def both(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Inside, Inside]:
    """One recorded log, imported into a SQLite file and into PostgreSQL."""
    realms = []
    for name, address in (("file", "world.db"), ("postgres", postgres_url)):
        folder = tmp_path_factory.mktemp(name)
        (folder / "world.toml").write_text(f'log = "{address}"\n{CONFIG}')
        realms.append(Inside(folder))
        realms[-1]("import", str(ROOT / "tests" / "golden" / "garden-leased.jsonl"))
    return realms[0], realms[1]


@pytest.fixture(scope="module")
def names(both: tuple[Inside, Inside]) -> dict[str, str]:
    """What the commands are asked about."""
    with Realm.open_read_only(both[0].folder / "world.db") as world:
        events = [event for _, event in world.events()]
    worlds = [event.world_id for event in events if isinstance(event, WorldSealed)]
    proposals = [event.proposal_id for event in events if isinstance(event, ProposalSubmitted)]
    judged = next(event.proposal_id for event in events if isinstance(event, ProposalJudged))
    return {"old": worlds[0], "world": worlds[-1], "proposal": proposals[-1], "judged": judged}


@pytest.mark.requirement("IC-audit", "CARD-audit")
@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_a_log_says_the_same_in_postgres_and_in_a_file(
    words: tuple[str, ...], both: tuple[Inside, Inside], names: dict[str, str]
) -> None:
    told = [word.format(**names) for word in words]
    file, postgres = (realm(*told, code=int(not FINDING.isdisjoint(told))) for realm in both)
    assert file.out
    assert file.out == postgres.out
