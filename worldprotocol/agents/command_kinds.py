"""What kinds of things a shell command does, by its words (KO-2.1, KO-5.1).

The words of a command are a hint and no proof: a program may do anything. Kinds serve policies, which choose what runs
confined and what people are asked; what a command really touches is held by confinement. What no grammar reads whole is
``unknown``, beside the kind that it would have. Source: docs/agents.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from worldprotocol.agents.command_grammars import (
    NAMES,
    PROGRAMS,
    SUBCOMMANDS,
    TABLES,
    WRAPPERS,
    Grammar,
    Parsed,
    is_assignment,
    parse,
)
from worldprotocol.agents.command_words import SimpleCommand, Word, read_command

__all__ = ["KINDS", "CommandReading", "in_order", "kinds_of", "read_words"]

KINDS: Final = (
    "read",
    "test",
    "format",
    "write",
    "commit",
    "remove",
    "discard",
    "code",
    "install",
    "network",
    "push",
    "publish",
    "container",
    "privileged",
    "outside",
    "unknown",
)
"""All kinds, the harmless ones first; docs/agents.md says what each means."""

_SYSTEM: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"})
_SHELLS: Final = frozenset({"bash", "csh", "dash", "fish", "ksh", "sh", "zsh"})
_HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_SOCKETS: Final = ("/dev/tcp/", "/dev/udp/")
_VARIABLES: Final = frozenset(TABLES["variables"]["harmless"].split())
_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_.,:/@+-]*")
_MODULES: Final = frozenset(TABLES["modules"]["known"].split())
_MOST_INNER: Final = 8
"""Commands within commands that are read."""


# Small languages inside of words: two readers of one text must agree, so regular expressions of sed with the mark
# inside of brackets, which GNU and BSD read differently, are not understood.

_TEXT: Final = r"(?:\\.|\[\^?\]?(?:(?!(?P=mark))[^\]\\\n])*\]|(?!(?P=mark))[^\\\n\[])*"
_ADDRESS: Final = r"(?:\d+|\$|/(?:\\.|\[\^?\]?[^\]\\\n/]*\]|[^/\\\n\[])*/)"
_SED: Final = re.compile(
    rf"\s*(?:{_ADDRESS}(?:,\+?{_ADDRESS})?)?\s*!?\s*"
    rf"(?:[pdq=]|s(?P<mark>[^\w\s\\\[\];])" + _TEXT + r"(?P=mark)(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)[gIip\d]*"
    r"|y(?P<other>[^\w\s\\\[\];])(?:(?!(?P=other))[^\\\n])*(?P=other)(?:(?!(?P=other))[^\\\n])*(?P=other))\s*"
)
"""One command of sed that prints, deletes or replaces; others write files or run programs."""

_NOT_OF_JQ: Final = re.compile(
    r"(?<![A-Za-z_])(?:env|ENV|import|include|modulemeta|input_filename|get_search_list)(?![A-Za-z0-9_])|__"
)
"""Names that read the environment or files; white space and comments may stand between ``$`` and its name."""

_FORMAT: Final = re.compile(r"(?!-)(?:[^%]|%%|%-?\d*(?:\.\d+)?[sbqc])*", re.DOTALL)
_OPERATORS: Final = frozenset({"-d", "-e", "-f", "-h", "-L", "-n", "-r", "-s", "-w", "-x", "-z", "-nt", "-ot", "-ef"})
"""Operators of ``test`` that evaluate nothing; shells evaluate what ``-v`` and, some of them, ``-eq`` compare."""


@dataclass(slots=True)
class CommandReading:
    """What the words of a simple command say.

    Args:
        kinds: of ``KINDS``.
        programs: the names of the programs that run, each with its subcommands, and its words as read.
        names: words that may be names of files, with what they are; ``any`` where no grammar says it.
    """

    kinds: set[str] = field(default_factory=set)
    programs: list[tuple[tuple[str, ...], Parsed]] = field(default_factory=list)
    names: list[tuple[str, Word]] = field(default_factory=list)

    @property
    def is_recursive(self) -> bool:
        """Whether contents of whole folders are read."""
        return any(parsed.is_recursive for _, parsed in self.programs)


def kinds_of(commands: Sequence[SimpleCommand], is_opaque: bool) -> list[str]:
    """Return the kinds of things that simple commands do, without repetition, in the order of ``KINDS``.

    Args:
        commands: as ``read_command`` returns them.
        is_opaque: whether there are parts that only a shell understands.
    """
    found = {"unknown"} if is_opaque else set[str]()
    return in_order(found.union(*(read_words(one).kinds for one in commands)))


def in_order(kinds: set[str]) -> list[str]:
    """Return kinds in the order of ``KINDS``; none are ``unknown``."""
    return [kind for kind in KINDS if kind in kinds] or ["unknown"]


def read_words(command: SimpleCommand) -> CommandReading:
    """Read the words of a simple command.

    Args:
        command: the command.
    """
    found = CommandReading()
    _read(found, command, _MOST_INNER)
    return found


def _read(found: CommandReading, command: SimpleCommand, left: int) -> None:
    redirected = (*command.reads, *command.writes)
    if any(one.text not in _HARMLESS_TARGETS for one in command.writes):
        found.kinds.add("write")
    if any(one.is_expanded for one in (*command.words, *redirected)):
        found.kinds.add("unknown")
    if any(one.text.startswith(_SOCKETS) for one in redirected):
        found.kinds.add("network")
    words = list(command.words)
    while words and is_assignment(words[0].text):
        _assign(found, words.pop(0))
    if words:
        _program(found, words, left)
    found.names += [("file", one) for one in command.reads]
    found.names += [("write", one) for one in command.writes]


def _assign(found: CommandReading, word: Word) -> None:
    name, _, value = word.text.partition("=")
    if name not in _VARIABLES or _PLAIN_VALUE.fullmatch(value) is None:
        found.kinds.add("unknown")
    found.names.append(("any", word))


def _program(found: CommandReading, words: Sequence[Word], left: int) -> None:
    """Add what a program with its words does."""
    first, *arguments = words
    folder, slash, name = first.text.rpartition("/")
    if left < 0 or first.is_pattern:
        found.kinds.add("unknown")
        _unread(found, words)
        return
    if slash and folder not in _SYSTEM:
        found.kinds.add("code")
        _unread(found, words)
        return
    name = str(TABLES["same_as"].get(name, name))
    if name == "python" and [one.text for one in arguments[:1]] == ["-m"] and len(arguments) > 1:
        module = arguments[1].text
        if module in _MODULES:
            _program(found, arguments[1:], left - 1)
            return
    if name in WRAPPERS:
        _wrapper(found, name, arguments, left)
        return
    if name in PROGRAMS:
        _grammatical(found, (name,), parse(PROGRAMS[name], arguments), left)
        return
    chosen = next((one.text for one in arguments if one.text[:1] != "-"), "")
    kind = SUBCOMMANDS.get(f"{name} {chosen}") or NAMES.get(name, "unknown")
    found.kinds.add(kind)
    _unread(found, words)
    _evaluated(found, name, arguments, left)


def _unread(found: CommandReading, words: Sequence[Word]) -> None:
    """Take every word for the name of a file, as no grammar says what it is."""
    found.names += [("any", one) for one in words]


def _evaluated(found: CommandReading, name: str, arguments: Sequence[Word], left: int) -> None:
    """Add what the text does that a shell is given as an argument."""
    texts = [one.text for one in arguments]
    if name == "eval":
        _text(found, " ".join(texts), left)
    elif name in _SHELLS:
        at = next((at for at, one in enumerate(texts) if one[:1] == "-" and one[:2] != "--" and "c" in one), None)
        if at is not None and at + 1 < len(texts):
            _text(found, texts[at + 1], left)


def _text(found: CommandReading, text: str, left: int) -> None:
    commands, is_opaque = read_command(text)
    found.kinds |= {"unknown"} if is_opaque or left < 0 else set()
    for one in commands if left >= 0 else ():
        _read(found, one, left - 1)


def _wrapper(found: CommandReading, name: str, arguments: Sequence[Word], left: int) -> None:
    parsed = parse(WRAPPERS[name], arguments)
    grammar = parsed.grammar
    if grammar.kind is not None:
        found.kinds.add(grammar.kind)
    if not parsed.is_known:
        found.kinds.add("unknown")
        _unread(found, arguments)
    if not parsed.options.isdisjoint(grammar.reads):
        found.kinds.add("read")
        return
    found.programs.append(((name,), parsed))
    _roles(found, parsed, left)
    for inner in parsed.inner:
        _program(found, inner, left - 1)
    if not parsed.inner:
        found.kinds.add("unknown")  # env alone prints secrets


def _grammatical(found: CommandReading, path: tuple[str, ...], parsed: Parsed, left: int) -> None:
    grammar = parsed.grammar
    if grammar.below and parsed.words:
        chosen = next((at for at, one in enumerate(parsed.words) if _is_subcommand(path, grammar.below, one.text)), -1)
        if chosen == 0 or (chosen > 0 and not grammar.words):
            _below(found, path, parsed, chosen, left)
            return
        parsed.is_known &= bool(grammar.words)
    kind = grammar.kind or "unknown"
    is_reading = not parsed.options.isdisjoint(grammar.reads) or (grammar.is_listing and not parsed.words)
    found.kinds.add("read" if is_reading else kind)
    found.programs.append((path, parsed))
    _options(found, parsed, left)
    for inner in parsed.inner:
        if inner:
            _program(found, inner, left - 1)


def _below(found: CommandReading, path: tuple[str, ...], parsed: Parsed, at: int, left: int) -> None:
    """Add what a subcommand does, which is the word at a place; after others it is not known to be it."""
    if parsed.unlisted or at > 0:
        found.kinds.add("unknown")
        _unread(found, [*parsed.unlisted, *parsed.words[:at]])
    for option in parsed.options:
        found.kinds.update(parsed.grammar.adds.get(option, ()))
    found.names += [(role, word) for role, word in parsed.roles if role == "folder"]
    first, *arguments = parsed.words[at:]
    below = parsed.grammar.below.get(first.text)
    if below is not None:
        _grammatical(found, (*path, first.text), parse(below, arguments), left)
        return
    found.kinds.add(SUBCOMMANDS[f"{path[0]} {first.text}"])
    found.programs.append(((*path, first.text), parsed))
    _unread(found, arguments)


def _is_subcommand(path: tuple[str, ...], below: Mapping[str, Grammar], text: str) -> bool:
    return text in below or (len(path) == 1 and f"{path[0]} {text}" in SUBCOMMANDS)


def _options(found: CommandReading, parsed: Parsed, left: int) -> None:
    """Add what options of a program do, and the names among its words."""
    for option in parsed.options:
        found.kinds.update(parsed.grammar.adds.get(option, ()))
    if not parsed.is_known:
        found.kinds.add("unknown")
        _unread(found, [*parsed.unlisted, *parsed.words, *(word for _, word in parsed.roles)])
    _roles(found, parsed, left)


def _roles(found: CommandReading, parsed: Parsed, left: int) -> None:
    for role, word in parsed.roles:
        if role in _HARMLESS:
            if not _HARMLESS[role](word.text):
                found.kinds.add("unknown" if role != "sed" else "code")
        elif role == "shell":
            found.kinds.add("code")
            _text(found, word.text, left - 1)
        elif role == "assign":
            _assign(found, word)
        elif role != "text":
            found.names.append((role, word))
            if role == "write" and parsed.grammar.kind == "read" and not _only_edits(parsed):
                found.kinds.add("write")


def _only_edits(parsed: Parsed) -> bool:
    """Whether words are changed only with another option: the files of sed."""
    return "-i" in parsed.grammar.optional


def _is_sed(script: str) -> bool:
    at = 0
    while at < len(script):
        found = _SED.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
        if at < len(script) and script[at] not in ";\n" and script[at - 1] != "\n":
            return False
        at += 1
    return True


_HARMLESS: Final[Mapping[str, Callable[[str], bool]]] = {
    "sed": _is_sed,
    "jq": lambda text: _NOT_OF_JQ.search(text) is None,
    "printf": lambda text: _FORMAT.fullmatch(text) is not None,
    "plus": lambda text: text.startswith("+"),
    "operator": lambda text: not text.startswith("-") or text in _OPERATORS or text == "-",
}
"""Whether a text only reads and prints, by its language; ``plus`` is a format of ``date``, ``operator`` of ``test``."""
