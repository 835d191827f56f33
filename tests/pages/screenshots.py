"""Makes the screenshots of the documentation: each page on the realm of the demo, as a signed-in person sees it.

    python -m tests.pages.screenshots [FOLDER]

The first branches of the demo's history are imported with their times moved to the present, programs run under
``worldctl run``, and the pages are opened in the browser that is installed. Ids and texts are those of the history;
times, and what depends on them, differ from one run to the next.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import sync_playwright

from examples.repository.history import Session, read_sessions
from examples.repository.importing import Import
from examples.repository.programs import Programs
from examples.repository.rules import MAINTAINER
from tests.cli.realm import ROOT, CliRealm
from tests.pages.pages_of import judged, signing
from tests.plugins.browser import ALONE, installed
from tests.server.served import Place, Served

TARGET: Final = ROOT / "docs" / "screenshots"
BRANCHES: Final = 149
"""Branches of the history that are imported; the last ones wait for the maintainer."""

HEIGHT: Final = 860
COLOURS: Final = 240
MINUTE_MS: Final = 60_000
PATIENCE_MS: Final = 300_000
DRAFT: Final = """\
name = "draft"

[[rules]]
id = "large_branches_are_reviewed"
verdict = "escalate"
when = "size(intent.input.changes) > 20"
reason = "more than 20 paths"

[[rules]]
id = "others_pass"
verdict = "approve"
"""


@dataclass(frozen=True)
class Shot:
    """One picture.

    Args:
        name: its name, to which the colour scheme and the width are added.
        path: address below the realms; ``{proposal}``, ``{policy}``, ``{world}`` and ``{run}`` are filled in.
        widths: widths in pixels.
    """

    name: str
    path: str
    widths: tuple[int, ...] = (1280,)


SHOTS: Final = (
    Shot("inbox", "main/inbox", (1280, 420)),
    Shot("proposals", "main/proposals?status=completed"),
    Shot("proposal", "main/proposals/{proposal}", (1280, 420)),
    Shot("worlds", "main/worlds"),
    Shot("world", "main/worlds/{world}"),
    Shot("leases", "main/leases"),
    Shot("policies", "main/policies"),
    Shot("policy", "main/policies/{policy}"),
    Shot("backtest", "main/policies/backtest"),
    Shot("runs", "shared/runs"),
    Shot("run", "shared/runs/{run}"),
    Shot("proof", "main/proof?of={world}"),
    Shot("log", "main/log?types=decision.made"),
)
"""All pictures."""


def moved(sessions: list[Session], now_ms: int) -> list[Session]:
    """Return the sessions with their times moved, so that the last one ended half an hour ago."""
    by = now_ms - 30 * MINUTE_MS - max(one.end_ms for one in sessions)
    return [replace(one, start_ms=one.start_ms + by, end_ms=one.end_ms + by) for one in sessions]


def founded(folder: Path) -> Place:
    """Found the realms ``main`` and ``shared``, and write their configuration."""
    place = Place(folder, str(folder / "world.db"))
    running = Import(folder, moved(read_sessions()[:BRANCHES], time.time_ns() // 1_000_000))
    with running.realm as realm:
        running.run()
        for right in ("approver", "reader", "auditor", "operator"):
            realm.access.grant(MAINTAINER, right, by="operator")
        _leases(realm, [name for name in realm.realm().actors if name not in (MAINTAINER, "scheduler")][:3])
    programs = Programs(folder / "shared", _must)
    programs.edit_at_once()
    programs.go_too_far()
    shared = CliRealm(folder / "shared")
    shared("actor", "add", MAINTAINER, "--kind", "human", "--auto-approve")
    for right in ("reader", "auditor"):
        shared("rights", "grant", MAINTAINER, right)
    (folder / "world.toml").write_text(
        f"log = {json.dumps(place.log)}\ndomain = 'examples.repository.domain:repository'\n"
        "projections = ['examples.repository.branches:branch']\npolicies = ['examples.repository.rules:policy']\n"
        "effects = ['examples.repository.effects:handlers']\n[realms]\nshared = 'shared/world.toml'\n"
        "[checkpoint]\norigin = 'example.com/flask'\nkey = 'checkpoint.key'\n",
        encoding="utf-8",
    )
    CliRealm(folder)("checkpoint", "keygen", "example.com/flask", "-o", "checkpoint.key")
    return place


def _must(holds: bool, sentence: str) -> None:
    assert holds, sentence


def _leases(realm: Any, agents: list[str]) -> None:
    """Let two agents hold parts of the tree, and the oldest wait for the youngest."""
    oldest, middle, youngest = agents
    desk, day = realm.leases.desk, 86_400_000
    for agent, session, place in (
        (oldest, "docs", "FILE:/docs/*"),
        (middle, "tests", "FILE:/tests/*"),
        (youngest, "routing", "FILE:/flask.py"),
        (oldest, "signals", "FILE:/flask.py"),
    ):
        scope = [{"predicate": "MUTATES", "resource": place}]
        manifest = {"ver": "1.0", "agent_id": agent, "session_id": session, "scope": scope}
        desk.request(manifest, by=agent, ttl_ms=day, queue=True)


def small(picture: bytes) -> bytes:
    """Return a PNG with a palette of the most frequent colours."""
    out = io.BytesIO()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def _chosen(served: Served) -> dict[str, str]:
    """Return the proposal, world, policy and run that are shown."""
    with served.place.realm() as realm:
        worlds = [one for one in realm.worlds(40) if one.outcome == "completed"]
        sealed = [realm.archive.sealed(one.world_id) for one in worlds]
        best = max((one for one in sealed if one.created_by), key=lambda one: len(one.patches))
        policy = next(iter(realm.realm().policies.values()))
    run = CliRealm(served.place.folder / "shared")("runs", "--json").json[0]
    return {
        "proposal": str(best.created_by),
        "world": best.world_id,
        "policy": policy.policy_hash,
        "run": str(run["runId"]),
    }


@contextmanager
def _signed_in(browser: Any, served: Served, links: list[str]) -> Iterator[Any]:
    """Yield the stored state of a browser that is signed in to all realms."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    tab = context.new_page()
    for link in links:
        tab.goto(link)
        tab.get_by_role("button").first.click()
        tab.wait_for_url(re.compile(r"/realms/\w+/(?!sign-in)"))
    state = context.storage_state()
    context.close()
    yield state


def taken(target: Path, folder: Path) -> dict[str, int]:
    """Make all pictures, and return the size of each in bytes.

    Args:
        target: where they go.
        folder: where the realms are founded.
    """
    target.mkdir(parents=True, exist_ok=True)
    sizes = {}
    with signing(founded(folder), MAINTAINER) as served, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed(), args=[*ALONE, "--no-sandbox"])
        chosen = _chosen(served)
        with _signed_in(browser, served, served.all_links) as state:
            for scheme in ("light", "dark"):
                for shot in SHOTS:
                    for width in shot.widths:
                        viewport: Any = {"width": width, "height": HEIGHT}
                        context = browser.new_context(storage_state=state, viewport=viewport, color_scheme=scheme)
                        context.set_default_timeout(PATIENCE_MS)
                        picture = small(_taken(context.new_page(), served, shot, chosen))
                        context.close()
                        name = f"{shot.name}-{scheme}{'' if width == 1280 else f'-{width}'}.png"
                        (target / name).write_bytes(picture)
                        sizes[name] = len(picture)
        browser.close()
    return sizes


def _taken(tab: Any, served: Served, shot: Shot, chosen: dict[str, str]) -> bytes:
    answer = tab.goto(f"{served.url}/realms/{shot.path.format(**chosen)}")
    assert answer.status == 200, (shot, answer.status)
    if shot.name == "backtest":
        tab.get_by_label("Policy file").fill(DRAFT)
        tab.get_by_role("button", name="Judge again").click()
        judged(tab)
    if shot.name == "proof":
        tab.wait_for_selector("#result[data-state=proven]")
        tab.locator("#check").scroll_into_view_if_needed()
        tab.mouse.wheel(0, HEIGHT)
    picture: bytes = tab.screenshot()
    return picture


def main() -> None:
    """Make the pictures of the documentation, or those of another folder."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    with tempfile.TemporaryDirectory() as folder:
        sizes = taken(target, Path(folder))
    print(f"{len(sizes)} pictures in {target}, {sum(sizes.values()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
