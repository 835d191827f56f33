"""A service desk whose agent calls tools: its domain, its policy, and its realm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from authority.policies.opinions import Approve, Escalate, Narrow, Opinion, Reject
from worldprotocol import ActionContext, ActionSteps, Case, Domain, Policy, Realm, effect, rule, set_
from worldprotocol.agents.frameworks.gate import GovernedTool
from worldprotocol.agents.tool_calls import TOOL_CALL


class Desk(BaseModel):
    """What the desk remembers."""

    refunded: dict[str, int] = {}
    pages: dict[str, int] = {}


class Refund(BaseModel):
    """Input of a refund."""

    order: str
    amount: int = Field(gt=0)


class Publish(BaseModel):
    """Input of publishing pages."""

    pages: list[str]
    first: str | None = None


class Use(BaseModel):
    """Input of the use of any other tool."""

    tool: str
    arguments: Any = None


desk = Domain("urn:example:desk", version="1.0.0", state=Desk)


@desk.action("tool.use", version="1")
def use(ctx: ActionContext[Desk], given: Use) -> ActionSteps:
    """Call a tool that has no action of its own."""
    yield effect("tool.call", tool=given.tool)
    return []


@desk.action("refund.issue", version="1")
def refund(ctx: ActionContext[Desk], given: Refund) -> ActionSteps:
    """Pay money back."""
    yield effect("tool.call", tool="refund")
    return []


@desk.action("refund.book", version="1")
def book(ctx: ActionContext[Desk], given: Refund) -> ActionSteps:
    """Pay money back, and remember it in the state once it was paid."""
    yield effect("tool.call", tool="book")
    return [set_(f"refunded.{given.order}", given.amount)]


@desk.action("page.publish", version="1")
def publish(ctx: ActionContext[Desk], given: Publish) -> ActionSteps:
    """Publish pages; each is data of the desk, so that a part of them can be approved."""
    yield effect("tool.call", tool="publish")
    return []


@desk.action("note.add", version="1")
def note(ctx: ActionContext[Desk]) -> None:
    """Do nothing; it is no call of a tool."""


@rule
def amounts(case: Case) -> Opinion:
    """Small refunds pass, large ones are a person's decision, and very large ones are refused."""
    given: Any = case.intent.body.input or {}
    amount = (given.get("arguments") or given).get("amount", 0)
    if amount > 1_000:
        return Reject("agents make no refunds above 1000")
    if amount > 100:
        return Escalate(("ann",), "a refund above 100")
    if case.intent.body.type == "page.publish":
        return Narrow(["pages.home", "pages.help"], "agents publish no legal pages")
    return Approve("small")


policy = Policy("desk", [amounts])


CONFIG = f"""
log = "world.db"
domain = "{__file__}:desk"
policies = ["{__file__}:policy"]
effects = ["worldprotocol.agents.tool_calls:TOOL_CALL"]
"""

TOOLS: dict[str, GovernedTool | str] = {
    "refund": "refund.issue",
    "publish": GovernedTool("page.publish", narrows={"pages": "pages.{}"}),
}
"""Which action a call of a tool is. The elements of ``pages`` are data of the desk: they can be approved in part."""

REQUEST = "Refund orders o-1 (30), o-2 (300) and o-3 (3000), and publish the pages home and imprint."
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("refund", {"order": "o-1", "amount": 30}),
    ("refund", {"order": "o-2", "amount": 300}),
    ("refund", {"order": "o-3", "amount": 3000}),
    ("publish", {"pages": ["home", "imprint"]}),
]
"""What the scripted model calls, at once."""


def desk_realm(folder: Path) -> Realm:
    """Open the realm in a folder for acting; where there is none, it is founded with ann and her agent."""
    is_new = not (folder / "world.db").exists()
    (folder / "world.toml").write_text(CONFIG, encoding="utf-8")
    realm = Realm.open_or_create(str(folder / "world.db"), domain=desk, policies=[policy], effects=[TOOL_CALL])
    if is_new:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "desk", "ask": ["ann"]})
    return realm


class Books:
    """The tools themselves, without any governance: they write down what they did.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        """Open nothing yet."""
        self._file = folder / "books.txt"

    def refund(self, order: str, amount: int) -> str:
        """Pay money back for an order."""
        return self._write(f"refunded {amount} for {order}")

    def publish(self, pages: list[str]) -> str:
        """Publish pages of the web site."""
        return self._write(f"published {', '.join(pages)}")

    def _write(self, line: str) -> str:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return line


def folder_of(arguments: list[str]) -> Path:
    """Return the folder that the command line names."""
    folder = Path(arguments[1] if len(arguments) > 1 else "desk")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def show_waiting(folder: Path, proposal_id: str, waits_for: str) -> None:
    """Print that a call waits, and how it is decided."""
    print(f"waits for {waits_for}")
    print(f"decide it: worldctl --config {folder}/world.toml decide {proposal_id} approve --by ann")
