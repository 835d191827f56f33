"""``worldctl mcp proxy`` and ``worldctl mcp pin``: MCP servers under a realm, and their tools that may be called."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from worldprotocol.cli.support.command_context import CommandContext, command

if TYPE_CHECKING:
    from types import ModuleType

    from worldprotocol.agents.proxy.pins import Pins
    from worldprotocol.agents.proxy.realm_client import RealmClient
    from worldprotocol.agents.proxy.serving import UpstreamWords

PASSABLE: Final = ("resources", "prompts", "sampling", "elicitation")
"""The same as ``worldprotocol.agents.proxy.relay.PASSABLE``."""

FAILED: Final = 1
DECLINED: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RUNNER: Final = re.compile(r"(npx|uvx|uv|bunx|node|deno|docker|podman|sh|bash|env|python[0-9.]*)(\.exe|\.cmd)?")
"""Programs that run others: the name of one is no name of a server."""

Words = tuple[str, ...]


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names the upstream and the realm."""
    for option in reversed(
        (
            click.option(
                "--name", metavar="NAME", help="Name of the server in intents and pins; its program's by default."
            ),
            click.option(
                "--server",
                default="http://127.0.0.1:8437",
                show_default=True,
                envvar="WORLDCTL_SERVER",
                metavar="URL",
                help="The server of the realm; WORLDCTL_SERVER names it too.",
            ),
            click.option("--realm", default="main", show_default=True, metavar="NAME", help="Name of the realm there."),
            click.option("--token-file", metavar="FILE", help="File with the token; WORLDCTL_TOKEN by default."),
            click.option(
                "--header",
                "headers",
                multiple=True,
                metavar="VARIABLE",
                help="Variable of the environment with a header for a URL, `NAME: VALUE`; may be repeated.",
            ),
            click.argument("words", metavar="UPSTREAM...", nargs=-1, required=True, type=click.UNPROCESSED),
        )
    ):
        function = option(function)
    return function


@command("proxy")
@_options
@click.option(
    "--pass",
    "passes",
    multiple=True,
    type=click.Choice(PASSABLE),
    help="Also pass what the policy does not judge; may be repeated.",
)
@click.option(
    "--wait",
    type=click.FloatRange(0, 3_600),
    default=50.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait of a call for people and leases.",
)
@click.option(
    "--answer-within",
    type=click.FloatRange(1, 86_400),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for the answer of UPSTREAM.",
)
@click.option(
    "--silence",
    type=click.FloatRange(1, 3_600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time after which a call is in doubt whose proxy was killed.",
)
def proxy(
    desk: CommandContext, *, passes: Words, wait: float, answer_within: float, silence: float, **place: Any
) -> int:
    """Put an MCP server under a realm: judge each call of its tools, and record its outcome; a coding agent starts it.

    UPSTREAM is the command that starts the server, after `--`, or its URL. Its tools may be called once they are pinned
    with `worldctl mcp pin`. The agent needs a token of its own: `worldctl token create --actor ID --can act`.
    """
    del desk
    serving = _serving()
    from worldprotocol.agents.proxy.governed_call import CallSettings

    settings = CallSettings(wait_s=wait, answer_s=answer_within, silence_s=silence)
    code: int = serving.serve(_realm(place), _upstream(place), settings, frozenset(passes))
    return code


@command("pin")
@_options
@click.option("--yes", is_flag=True, help="Pin without the question.")
@click.option("--dry-run", is_flag=True, help="Print what differs from the pins, and pin nothing.")
def pin(desk: CommandContext, *, yes: bool, dry_run: bool, **place: Any) -> int:
    """Show what the tools of an MCP server are, or what differs from their pins, and pin them; people do this.

    Read the descriptions: they are instructions to the agent. UPSTREAM is the command that starts the server, after
    `--`, or its URL. The token is that of the person who pins; if the policy asks another one, the pins wait for them.
    """
    if desk.json and not (yes or dry_run):
        raise click.UsageError("--json asks no question: add --yes to pin, or --dry-run to see what differs.")
    serving = _serving()
    from worldprotocol.agents.proxy.pins import differences

    upstream = _upstream(place)
    now: Pins = _asked(serving.described, upstream)
    pinned: Pins | None = _asked(serving.pins_of, _realm(place), upstream.name)
    lines = differences(pinned, now)
    result: dict[str, Any] = {"server": upstream.name, "tools": sorted(now.tools), "differences": lines}
    if not lines:
        desk.out.tell(result, f"The {len(now.tools)} tools of {upstream.name} are as they are pinned.")
        return 0
    if not desk.json:
        for line in lines:
            desk.out.text(line)
    if dry_run:
        if desk.json:
            desk.out.document(result)
        return 0
    if not yes and not _confirmed(f"Pin these tools of {upstream.name}?"):
        return DECLINED
    proposal = _asked(serving.propose, _realm(place), upstream.name, now)
    status, name = str(proposal.get("status")), str(proposal.get("proposalId"))
    words = {"completed": "are pinned", "submitted": "wait for leases", "evaluating": "wait for people"}.get(status)
    desk.out.tell(
        {**result, "proposalId": name, "status": status},
        f"The tools of {upstream.name} {words or 'are not pinned'}: proposal {name} is {status}.",
    )
    return FAILED if words is None else 0


def _confirmed(question: str) -> bool:
    """Return the answer to a question.

    Raises:
        click.UsageError: stdin has none.
    """
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("Nothing was pinned: stdin has no answer; --yes pins without the question.") from None


def _serving() -> ModuleType:
    """Return the module that serves a client.

    Raises:
        RefusedError: ``NOT_LOADED`` where the extra is not installed.
    """
    from world.extras import needs_extra

    with needs_extra("Proxies of MCP servers", "mcp"):
        from worldprotocol.agents.proxy import serving
    return serving


def _upstream(place: dict[str, Any]) -> UpstreamWords:
    """Return the upstream that the command line names.

    Raises:
        click.UsageError: it has no usable name.
    """
    from worldprotocol.agents.proxy.serving import UpstreamWords
    from worldprotocol.agents.proxy.upstream import is_url

    words: Words = place["words"]
    program = PurePath(words[0]).name
    found = _host(words[0]) if is_url(words) else "" if _RUNNER.fullmatch(program) else program
    name = place["name"] if place["name"] is not None else found
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"{name or words[0]!r} is no name of a server; write --name NAME, with letters, digits, '.', '_' and '-'."
        )
    return UpstreamWords(name, words, place["headers"])


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _realm(place: dict[str, Any]) -> RealmClient:
    from worldprotocol.agents.proxy.realm_client import RealmClient
    from worldprotocol.api.remote.addresses import read_server_address
    from worldprotocol.client.token_file import given_token

    return RealmClient(read_server_address(place["server"]), place["realm"], given_token(place["token_file"]))


def _asked(ask: Callable[..., Any], *given: Any) -> Any:
    """Return what a function of the proxy returns.

    Raises:
        click.ClickException: the upstream or the realm could not be asked.
    """
    from worldprotocol.agents.proxy.realm_client import RealmError
    from worldprotocol.agents.proxy.upstream import UpstreamError

    try:
        return ask(*given)
    except (RealmError, UpstreamError) as error:
        raise click.ClickException(str(error)) from None
