"""The table of the commands that a server executes; a command or an option that it does not list is refused.

Client and server read it, so it imports neither the engine nor a package of the server. Options are written as
``--name`` for a flag and ``--name=FORM`` for a value:

=========  ============================================================================================
text       any text
json       JSON, ``@FILE`` or ``-``: the client sends the content
file       a file or ``-``: the client sends the content
found      a text, or a file that exists: the client sends the content
pair       two texts, or files that exist
policy     the name of a policy, never a file or a reference, which would be those of the server
seconds    a time to wait, which the server limits
caller     the actor that acts: the verified caller, and no other
read       a text that is resolved by reading the realm: only for callers that may read all of it
=========  ============================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from world.events.verification import Right

__all__ = ["LOCAL", "OFFLINE", "REMOTE", "WRITES_FILES", "CommandOption", "RemoteCommand"]


@dataclass(frozen=True, slots=True)
class CommandOption:
    """An option of a command.

    Args:
        name: with its dashes.
        form: see the module; empty for a flag.
    """

    name: str
    form: str


@dataclass(frozen=True, slots=True)
class RemoteCommand:
    """A command that a server executes.

    Args:
        path: its words, such as ``lease list``.
        rights: rights of which the caller needs one.
        options: what it permits besides ``--json`` and ``--quiet``.
        arguments: the forms of its arguments; a last one that ends in ``...`` may come any number of times.
        is_whole: whether its output is made of many events, so that a reader with redaction is refused.
        is_own: whether a caller that may not read everything names only proposals that it may read.
        redacts: whether it takes ``--redact RULE``, which then has the rules of the reader.
        is_held: whether its output is printed once all of it has come, because that of a repeated request differs.
        is_of_engine: whether what it writes is done by the server, as when time passes, and has no caller.
        fixed: words that are always added.
    """

    path: str
    rights: tuple[Right, ...]
    options: tuple[CommandOption, ...]
    arguments: tuple[str, ...]
    is_whole: bool = False
    is_own: bool = False
    redacts: bool = False
    is_held: bool = False
    is_of_engine: bool = False
    fixed: tuple[str, ...] = ()

    def option(self, name: str) -> CommandOption | None:
        """Return an option; None where the table does not permit it."""
        return next((one for one in self.options if one.name == name), None)

    def form_of(self, index: int) -> str | None:
        """Return the form of an argument by its index; None where there is no such argument."""
        if index < len(self.arguments) and not self.arguments[index].endswith("..."):
            return self.arguments[index]
        last = self.arguments[-1] if self.arguments else ""
        return last.removesuffix("...") if last.endswith("...") else None


def _row(
    path: str, rights: tuple[Right, ...], options: str = "", arguments: str = "", *, kind: str = "", fixed: str = ""
) -> RemoteCommand:
    """Return a row; ``kind`` names its properties: whole, own, redacts, held, engine."""
    pairs = (word.partition("=") for word in options.split())
    kinds = kind.split()
    return RemoteCommand(
        path,
        rights,
        tuple(CommandOption(name, form) for name, _, form in pairs),
        tuple(arguments.split()),
        is_whole="whole" in kinds,
        is_own="own" in kinds,
        redacts="redacts" in kinds,
        is_held="held" in kinds,
        is_of_engine="engine" in kinds,
        fixed=tuple(fixed.split()),
    )


_READ: Final[tuple[Right, ...]] = ("reader", "auditor")
_PROPOSALS: Final[tuple[Right, ...]] = ("reader", "auditor", "actor", "approver")
_EFFECTS: Final[tuple[Right, ...]] = ("reader", "auditor", "operator")
_ACT: Final[tuple[Right, ...]] = ("actor",)
_OPERATE: Final[tuple[Right, ...]] = ("operator",)
_AUDIT: Final[tuple[Right, ...]] = ("auditor", "operator")
_AUDITOR: Final[tuple[Right, ...]] = ("auditor",)
_START: Final = "--branch=text --base=read --allow-failed --stop-on-error --wait=seconds"
_BINDING: Final = (
    "--bind=json --auto-approve --policy=text --ask=text --tribunal=text --vote=text --threshold=text "
    "--timeout-ms=text --on-timeout=text --by=caller"
)

_ALL: Final = (
    _row("submit", _ACT, f"--actor=caller --input=json --scope=text --note=text --intents=file {_START}", "text"),
    _row("project", _ACT, f"--actor=caller --events=file {_START}", "json"),
    _row("inbox", _PROPOSALS, "--for=text --at=read --caller-left", kind="own"),
    _row("decide", ("approver", "actor"), "--by=caller --scope=text --to=text --reason=text", "text text", kind="own"),
    _row("settle", _OPERATE, kind="engine"),
    _row(
        "resolve",
        _OPERATE,
        "--effect=text --happened --result=json --retry --fail --by=caller --reason=text",
        "text",
    ),
    _row("cancel", _OPERATE, "--by=caller --reason=text", "text"),
    _row("stuck", _EFFECTS, "--at=text", kind="whole"),
    _row("effects", _EFFECTS, "--at=text --type=text", kind="whole"),
    _row(
        "lease acquire",
        _ACT,
        "--agent=caller --session=text --predicate=text --manifest=json --ttl-ms=text --wait=seconds --retry "
        "--require-signature --by=caller",
        "text...",
    ),
    _row("keys register", _OPERATE, "--by=caller", "text found"),
    _row("keys revoke", _OPERATE, "--reason=text --by=caller", "text"),
    _row("keys list", _READ, "--at=text", kind="whole"),
    _row("actor add", _OPERATE, f"--kind=text --name=text --meta=json {_BINDING}", "text"),
    _row("actor bind", _OPERATE, _BINDING, "text"),
    _row("actor list", _READ, "--at=text", kind="whole"),
    _row("rights grant", _OPERATE, "--redact=text --by=caller", "text text"),
    _row("rights revoke", _OPERATE, "--reason=text --by=caller", "text text"),
    _row("rights list", _AUDIT, "--at=text"),
    _row("token create", _OPERATE, "--actor=text --can=text --days=text --note=text --by=caller", kind="held"),
    _row("token revoke", _OPERATE, "--reason=text --by=caller", "text"),
    _row("token list", _AUDIT, "--at=text"),
    _row("policy adopt", _OPERATE, "--by=caller", "policy"),
    _row("policy retire", _OPERATE, "--reason=text --by=caller", "policy"),
    _row("policy list", _READ, "--all --at=text", kind="whole"),
    _row("policy show", _READ, "--at=text", "policy", kind="whole"),
    _row("policy diff", _READ, "--at=text", "policy...", kind="whole"),
    _row("policy shadow on", _OPERATE, "--for=text --by=caller", "policy"),
    _row("policy shadow off", _OPERATE, "--by=caller"),
    _row("policy shadow show", _READ, "--of=text --check --at=text", kind="whole"),
    _row(
        "policy ask",
        _READ,
        "--actor=text --input=json --scope=text --intent=file --set=text --policy=policy --at=text --branch=text",
        "text",
        kind="whole",
    ),
    _row(
        "policy backtest",
        _AUDITOR,
        "--with=policy --of=text --since=text --until=text --branch=text --last=text",
        kind="whole",
        fixed="--jobs 1",
    ),
    _row(
        "log",
        _READ,
        "--actor=text --type=text --status=text --branch=text --topic=text --since=text --until=text --limit=text "
        "--reverse --follow --at=text --redact=text",
        kind="redacts",
    ),
    _row("show", _PROPOSALS, "--data --at=read --redact=text", "text", kind="own redacts"),
    _row("explain", _PROPOSALS, "--redact --at=read", "text", kind="own whole"),
    _row("trace", _PROPOSALS, "--at=read", "text", kind="own whole"),
    _row("runs", _READ, "--open --agent=text --most=text --at=text", kind="whole"),
    _row(
        "actions",
        _READ,
        "--actor=text --mode=text --tools --all --certain --max=text --sort=text --at=text --branch=text --explain",
        kind="whole",
    ),
    _row("state", _READ, "--at=text --branch=text", "text", kind="whole"),
    _row("diff", _READ, "", "text text", kind="whole"),
    _row("bisect", _READ, "--good=text --bad=text --path=text --becomes=text", kind="whole"),
    _row("blame", _READ, "--at=text --branch=text", "text", kind="whole"),
    _row("worlds", _READ, "--branch=text --limit=text --at=text", kind="whole"),
    _row("report", _READ, "--since=text --until=text --at=text --all --redact=text", kind="redacts"),
    _row("replay", _READ, "--at=text --data", kind="whole"),
    _row("verify", _AUDIT, "--against=found --vkey=text --origin=text --old-vkey=text"),
    _row("recheck", _AUDIT, "--all --upto=text --at=text", kind="whole", fixed="--jobs 1"),
    _row("whatif", _AUDITOR, "--from=text --drop=text --policy=policy --insert=file", kind="whole"),
    _row("checkpoint", _READ),
    _row("prove", _READ, "--between=pair --checkpoint=file --format=text", "text", kind="whole"),
    _row("export", _READ, "--redact=text", kind="redacts"),
)
REMOTE: Final = {one.path: one for one in _ALL}
"""The commands that a server executes, by their words."""

_WORKSPACE = "works on the workspace, a folder of the machine that has the realm"
_PROGRAM = "runs the program of the realm, which is on the machine that has the realm"
_NO_REALM = "needs no realm and no server"

LOCAL: Final = {
    "init": "founds a realm on this machine",
    "new": "founds a realm on this machine",
    "import": "writes a log on this machine",
    "salvage": "reads a damaged log on this machine",
    "adopt": _PROGRAM,
    "dev": _PROGRAM,
    "run": _WORKSPACE,
    "workspace": _WORKSPACE,
    "backups": _WORKSPACE,
    "serve": "is the server",
    "realm": "works on databases, from a machine that reaches them",
    "hooks": "has options of its own for a server; write --server after the name of the subcommand",
    "mcp": "has options of its own for a server; write --server after `mcp`",
    "worker": "has options of its own for a server; write --server after `worker`",
    "feed": "delivers events from the machine that has the log, with its secrets",
    "clock confirm": "confirms the clock of the machine on which it runs",
    "klis configure": "brings settings of world.toml into force, a file of the machine that has the realm",
    "klis schema": _NO_REALM,
    "klis validate": _NO_REALM,
    "klis sign": _NO_REALM,
    "klis verify": _NO_REALM,
    "keys new": _NO_REALM,
    "archive": "writes files on the machine that has the log",
    "cut": "reads archives of the machine that has the log",
    "sql": "reads the whole log; export it over the server as JSON lines, import them, and ask here",
    "checkpoint keygen": _NO_REALM,
    "domain": _NO_REALM,
    "simulate": _NO_REALM,
    "policy lint": "reads policy files of this machine",
    "policy test": "reads policy files of this machine",
    "doctor": "checks the machine on which it runs",
}
"""Why other commands are not executed by a server, by the beginning of their words."""

WRITES_FILES: Final = frozenset({"checkpoint", "export", "prove", "report"})
"""Commands that write a file where an option or an argument names one; over a server they print."""

OFFLINE: Final = frozenset(
    {
        "init",
        "new",
        "import",
        "salvage",
        "simulate",
        "domain",
        "serve",
        "realm",
        "hooks",
        "mcp",
        "worker",
        "feed",
        "dev",
        "doctor",
        "klis schema",
        "klis validate",
        "klis sign",
        "klis verify",
        "keys new",
        "checkpoint keygen",
        "policy lint",
        "policy test",
    }
)
"""Commands that run on this machine although ``WORLDCTL_SERVER`` names a server."""
