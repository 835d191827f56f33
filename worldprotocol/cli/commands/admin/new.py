"""``worldctl new``: a running project from three answers: where, from which template, and who decides."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.templates import NAMES

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm

AGENT: Final = "bot"
READ_ME: Final = "README.md"
CODING: Final = "coding-agents"
PRESETS: Final = ("normal", "strict", "trusting")
"""The policies of the template for coding agents; the first one has the template's own name."""

PERSON_RIGHTS: Final = ("actor", "approver", "auditor", "operator", "reader")


@command("new")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option("--template", type=click.Choice(NAMES), help="What the project is about.")
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    default="normal",
    show_default=True,
    help="For coding-agents: what agents may do without a person.",
)
@click.option("--person", metavar="ID", help="Actor id of the person who is asked, such as ann.")
def new(desk: CommandContext, folder: str | None, template: str | None, preset: str, person: str | None) -> None:
    """Write a project into DIR, found its realm, and register a person and the agent `bot`.

    What is not given is asked for. The files are yours to change; README.md in DIR says what to do next.
    """
    asks = sys.stdin.isatty()
    folder = folder or _asked("Folder of the project", "world", can_ask=asks)
    template = template or _asked("Template", NAMES[0], can_ask=asks, choices=NAMES)
    person = person or _asked("Actor id of the person who decides", "ann", can_ask=asks)
    where = Path(folder)
    if preset != PRESETS[0] and template != CODING:
        raise click.UsageError(f"--preset goes with the template {CODING}.")
    policy = template if preset == PRESETS[0] else f"{template}-{preset}"
    made = _founded(desk, template, where, (person, policy))
    text = _read_me(template, person, policy)
    (where / READ_ME).write_text(text, encoding="utf-8")
    words = [f"{where} has a realm from the template {template}; {person} decides, and {AGENT} proposes."]
    words.append(f"Next: cd {shlex.quote(str(where))}, and read README.md.")
    desk.out.tell(made | {"folder": str(where), "person": person, "agent": AGENT}, *words)


def _asked(question: str, default: str, *, can_ask: bool, choices: tuple[str, ...] = ()) -> str:
    """Return the answer of the person at the terminal.

    Raises:
        click.UsageError: there is no terminal.
    """
    if not can_ask:
        raise click.UsageError("Give DIR, --template and --person: there is no terminal on which to ask for them.")
    kind = click.Choice(choices) if choices else None
    return str(click.prompt(question, default=default, type=kind, err=True))


def _founded(desk: CommandContext, template: str, where: Path, who: tuple[str, str]) -> dict[str, object]:
    """Found the realm; ``who`` is the person who is asked, and the policy of the agent."""
    from world.model.new_names import check_new_id
    from worldprotocol.api.config import CONFIG_NAME, read_config
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.commands.admin.init import found_template
    from worldprotocol.cli.support.templates import names_of, refuse_existing

    person, policy = who
    check_new_id("actor", person)
    if person == AGENT:
        raise click.UsageError(f"{AGENT} is the agent of the project; name the person otherwise.")
    files = [where / one for one in (*names_of(template), READ_ME)]
    refuse_existing(*files, remedy="name a folder without it, or use `worldctl init --template`")
    made = found_template(desk, template, where, force=False, founding={"by": "operator", "development": True})
    config = read_config(where / CONFIG_NAME)
    with Realm.from_config(config, execute=False) as realm:
        _register(realm, policy, person)
    return made


def _register(realm: Realm, policy: str, person: str) -> None:
    binding = {"kind": "policy_rules", "policy": policy, "ask": [person]}
    realm.register(person, "human", binding={"kind": "auto_approve"})
    realm.register(AGENT, "agent", binding=binding)
    for right in PERSON_RIGHTS:
        realm.access.grant(person, right, by="operator")
    realm.access.grant(AGENT, "actor", by="operator")


_TRY: Final = {
    "ledger": """worldctl submit deposit --actor bot --input '{"amount": 100}'
worldctl submit pay --actor bot --input '{"to": "rent", "amount": 60}'""",
    "kanban": """worldctl submit card.add --actor bot --input '{"id": "first", "title": "Try it"}'
worldctl submit card.move --actor bot --input '{"id": "first", "column": "done"}'""",
    "release": """worldctl submit publish --actor bot --input '{"version": "1-0-0", "notes": "the first"}'
worldctl settle     # its policy rejects a release at weekends (UTC)""",
    "coding-agents": """mkdir -p project     # the folder that `root` names in world.toml: that of your project
worldctl token create --actor bot --can act     # for WORLDCTL_TOKEN of the agent
worldctl hooks install claude-code --project project""",
}


_PRESETS_TOLD: Final = """
What the agent may do without a person is its policy, {policy}. The three presets are policies of this realm:
`coding-agents-strict` (confined commands that read, test and format), `coding-agents` (also confined programs, scripts
and commits) and `coding-agents-trusting` (also commands that discard work). To change it:

    worldctl actor bind bot --policy coding-agents-strict --ask {person}

In every preset, a command that is not confined waits for a person. `worldctl doctor` says whether this machine can
confine commands.
"""


def _read_me(template: str, person: str, policy: str) -> str:
    told = _PRESETS_TOLD.format(policy=f"`{policy}`", person=person) if template == CODING else ""
    return f"""# A realm: {template}

What proposals may do is in `policy.toml` (`worldctl policy test` runs its cases), what actions do in the file that
`domain` names in `world.toml`. After a change: `worldctl policy adopt policy.toml`, `worldctl adopt`.
{told}
Try it, in this folder:

    {_TRY[template].replace(chr(10), chr(10) + "    ")}
    worldctl inbox
    worldctl worlds
    worldctl verify

Serve it, with the inbox of {person} in a browser:

    worldctl serve --sign-in {person}
"""
