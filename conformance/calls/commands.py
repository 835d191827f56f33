"""What commands of a shell do to files, hosts and processes, by their names and arguments.

A command that is not known, or is used in a way that could do more than is known, is opaque: it is assumed to change
anything below its working directory (KLIS-6 section 5; KO-5.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from conformance.calls.options import Arguments, arguments
from conformance.calls.place import CallLocation, Name, malformed
from conformance.calls.sed import touches_more
from conformance.calls.transfers import curl, wget
from conformance.calls.words import Redirect, ShellCommand, commands
from world.klis.observation import Seen
from world.klis.predicate import Predicate

__all__ = ["argument_list", "shell"]

MAX_SHELLS: Final = 8
"""Shells within shells (``sh -c "sh -c ..."``) that are read."""

Words = Sequence[Name]
Reader = Callable[[Words, CallLocation], Iterator[Seen]]

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS: Final = frozenset(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "[[",
        "coproc",
        "eval",
        "source",
        ".",
        "trap",
        "alias",
    ]
)
_GROUPS: Final = frozenset({"{", "}", "!"})
_HARMLESS: Final = frozenset(
    [
        "echo",
        "printf",
        "true",
        "false",
        ":",
        "pwd",
        "test",
        "[",
        "exit",
        "return",
        "set",
        "unset",
        "export",
        "sleep",
        "date",
        "whoami",
        "id",
        "uname",
        "which",
        "type",
        "basename",
        "dirname",
        "seq",
        "hostname",
        "printenv",
        "umask",
        "wait",
        "tr",
        "yes",
        "expr",
        "nproc",
        "arch",
        "tty",
        "groups",
        "read",
        "shift",
        "local",
        "readonly",
    ]
)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})


def shell(text: str, place: CallLocation) -> Iterator[Seen]:
    """Yield what a command line attempts.

    Raises:
        RefusedError: ``INVALID_CALL``.
    """
    if place.depth >= MAX_SHELLS:
        malformed(f"{place.call!r:.200} has more than {MAX_SHELLS} shells within shells.")
    outer: list[CallLocation] = []
    found = commands(text)
    if not any(command.words or command.redirects for command in found):
        malformed(f"{place.call!r:.200} holds no command.")
    for command in found:
        if command.after == "(":
            outer.append(place)
        elif command.after == ")":
            place = outer.pop()
        yield from _simple(command, place)
        moved = command.words[0].text == "cd" and command.after not in {"|", "|&"} if command.words else False
        if moved:
            place = place.at(command.words[1] if len(command.words) > 1 else Name("", known=False))


def argument_list(words: Words, place: CallLocation) -> Iterator[Seen]:
    """Yield what one program attempts with its arguments, the first of which is its name.

    Raises:
        RefusedError: ``INVALID_CALL``.
    """
    name = words[0]
    reader = COMMANDS.get(name.text.rpartition("/")[2]) if name.known and name.pattern is None else None
    if reader is None:
        yield from place.opaque(name if name.known and name.pattern is None else None)
    else:
        yield from reader(words[1:], place)


def _simple(command: ShellCommand, place: CallLocation) -> Iterator[Seen]:
    words = [word for word in command.words if word.text not in _GROUPS]
    while words and _ASSIGNMENT.match(words[0].text):
        del words[0]
    if words and words[0].text in _KEYWORDS:
        yield from place.opaque("sh")
    elif words and words[0].text == "cd":
        pass
    elif words:
        yield from argument_list(words, place)
    if command.substitutes:
        yield from place.opaque("sh")
    for redirect in command.redirects:
        yield from _redirected(redirect, place)


def _redirected(redirect: Redirect, place: CallLocation) -> Iterator[Seen]:
    operator, target = redirect.operator, redirect.target
    if operator in {"<<", "<<-", "<<<"}:
        return
    if operator in {"<&", ">&"} and (target.text.rstrip("-").isdigit() or target.text == "-"):
        return
    if operator in {"<", "<&"}:
        yield from place.file(Predicate.CONSUMES, target)
    else:
        yield from place.write(target)


# Files


def _reads(*, short: str = "", long: Sequence[str] = (), skip: int = 0, writes: Sequence[str] = ()) -> Reader:
    """Make the reader of a command that reads its operands.

    Args:
        short: letters of options with a value.
        long: long options with a value.
        skip: operands before the files.
        writes: options whose value is a file that is written.
    """

    def read(words: Words, place: CallLocation) -> Iterator[Seen]:
        given = arguments(words, short=short, long=long)
        for name in given.operands[skip:]:
            yield from place.file(Predicate.CONSUMES, name)
        for name in given.values(*writes):
            yield from place.write(name)

    return read


def _searches(words: Words, place: CallLocation) -> Iterator[Seen]:
    """Grep: a pattern, unless an option gives it, then files, or the working directory when it is recursive."""
    long = ("regexp", "file", "include", "exclude", "exclude-dir", "max-count", "context", "glob", "type")
    given = arguments(words, short="efABCmgt", long=long)
    for name in given.values("f", "--file"):
        yield from place.file(Predicate.CONSUMES, name)
    has_pattern = given.has("e", "f", "--regexp", "--file")
    files = given.operands if has_pattern else given.operands[1:]
    tree = given.has("r", "R", "--recursive", "--dereference-recursive")
    for name in files or ([Name(".")] if tree else []):
        yield from place.file(Predicate.CONSUMES, name, tree=tree)


def _ripgrep(words: Words, place: CallLocation) -> Iterator[Seen]:
    if any(word.text.startswith("--pre") for word in words):
        yield from place.opaque("rg")
    yield from _searches([Name("-r"), *(word for word in words if word.text not in {"-r", "--recursive"})], place)


def _lists(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words, short="IwTL")
    tree = given.has("R", "--recursive")
    for name in given.operands or (Name("."),):
        yield from place.file(Predicate.CONSUMES, name, tree=tree, looks=not tree)


def _walks(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words, short="dLPIoHt")
    for name in given.operands or (Name("."),):
        yield from place.file(Predicate.CONSUMES, name, tree=True)
    for name in given.values("o"):
        yield from place.write(name)


def _find(words: Words, place: CallLocation) -> Iterator[Seen]:
    starts = []
    left = [word for word in words if word.text not in {"-H", "-L", "-P"}]
    while left and not left[0].text.startswith(("-", "(", "!")):
        starts.append(left.pop(0))
    actions = {word.text for word in left}
    for name in starts or [Name(".")]:
        yield from place.file(Predicate.CONSUMES, name, tree=True)
        if "-delete" in actions:
            yield from place.file(Predicate.DELETES, name, tree=True)
    if actions & {"-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprintf", "-fls", "-fprint0"}:
        yield from place.opaque("find")


def _removes(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words)
    tree = given.has("r", "R", "--recursive")
    for name in given.operands:
        yield from place.file(Predicate.DELETES, name, tree=tree)


def _shreds(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words, short="ns", long=("iterations", "size", "random-source"))
    removes = given.has("u", "--remove")
    for name in given.operands:
        yield from place.file(Predicate.DELETES if removes else Predicate.MUTATES, name)


def _targets(given: Arguments) -> tuple[list[Name], list[Name]]:
    """Return sources and the target of each; a target that is a directory gets the names of the sources."""
    into = given.values("t", "--target-directory")
    sources = list(given.operands)
    if not into:
        if len(sources) < 2:
            return sources, []
        target = sources.pop()
        if len(sources) == 1 and sources[0].pattern is None and not target.text.endswith("/"):
            return sources, [target]
        into = [target]
    return sources, [_inside(into[0], source) for source in sources]


def _inside(folder: Name, source: Name) -> Name:
    known = folder.known and source.known
    if source.pattern is not None:
        return Name(f"{folder.text}/*", len(folder.text) + 1, known)
    return Name(f"{folder.text}/{source.text.rstrip('/').rpartition('/')[2]}", folder.pattern, known)


def _moves(words: Words, place: CallLocation) -> Iterator[Seen]:
    sources, targets = _targets(arguments(words, short="tS", long=("target-directory", "suffix")))
    for source, target in _pairs("mv", sources, targets, place):
        yield from place.file(Predicate.RENAMES, source)
        yield from place.file(Predicate.PROVIDES, target)


def _copies(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words, short="tSmog", long=("target-directory", "suffix", "mode", "owner", "group"))
    tree = given.has("r", "R", "a", "--recursive", "--archive")
    for source, target in _pairs("cp", *_targets(given), place):
        yield from place.file(Predicate.CONSUMES, source, tree=tree)
        yield from place.write(target, tree=tree)


def _pairs(command: str, sources: list[Name], targets: list[Name], place: CallLocation) -> Iterator[tuple[Name, Name]]:
    if not targets:
        malformed(f"{command} in {place.call!r:.200} needs a source and a target.")
    return zip(sources, targets, strict=True)


def _links(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words, short="tS", long=("target-directory", "suffix"))
    sources, targets = _targets(given)
    if not targets:
        targets = [Name(source.text.rpartition("/")[2], None, source.known) for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if not given.has("s", "--symbolic"):  # behind a hard link the old file can be changed
            yield from place.file(Predicate.MUTATES, source)
        if given.has("f", "--force"):
            yield from place.file(Predicate.DELETES, target)
        yield from place.file(Predicate.PROVIDES, target)


def _touches(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words, short="drt", long=("date", "reference", "time"))
    for name in given.values("r", "--reference"):
        yield from place.file(Predicate.CONSUMES, name)
    for name in given.operands:
        yield from place.write(name)


def _makes(words: Words, place: CallLocation) -> Iterator[Seen]:
    for name in arguments(words, short="mZ", long=("mode",)).operands:
        yield from place.file(Predicate.PROVIDES, name)


def _writes(words: Words, place: CallLocation) -> Iterator[Seen]:
    for name in arguments(words).operands:
        yield from place.write(name)


def _changes(skip: int, *, short: str = "") -> Reader:
    """Make the reader of a command that changes its operands after the first ones."""

    def read(words: Words, place: CallLocation) -> Iterator[Seen]:
        given = arguments(
            [_no_mode(word) for word in words] if skip else words, short=short, long=("reference", "size")
        )
        tree = given.has("R", "--recursive")
        for name in given.values("--reference"):
            yield from place.file(Predicate.CONSUMES, name)
        for name in given.operands[0 if given.has("--reference") else skip :]:
            yield from place.file(Predicate.MUTATES, name, tree=tree)

    return read


def _no_mode(word: Name) -> Name:
    """Take a mode like ``-w`` for the operand that it is."""
    return replace(word, text=f"a{word.text}") if re.fullmatch(r"-[rwxXst]+", word.text) else word


def _sed(words: Words, place: CallLocation) -> Iterator[Seen]:
    given = arguments(words, short="efl", long=("expression", "file", "line-length"))
    scripts = given.values("e", "--expression")
    files = list(given.operands)
    if not given.has("e", "f", "--expression", "--file") and files:
        scripts = [files.pop(0)]
    for name in given.values("f", "--file"):
        yield from place.file(Predicate.CONSUMES, name)
    for name in files:
        yield from place.file(
            Predicate.MUTATES if given.has("i", "--in-place") else Predicate.CONSUMES,
            name,
        )
    if given.has("f", "--file") or any(not one.known or touches_more(one.text) for one in scripts):
        yield from place.opaque("sed")


def _dd(words: Words, place: CallLocation) -> Iterator[Seen]:
    for word in words:
        name, _, value = word.text.partition("=")
        if name == "if":
            yield from place.file(Predicate.CONSUMES, replace(word, text=value))
        elif name == "of":
            yield from place.write(replace(word, text=value))


def _uniq(words: Words, place: CallLocation) -> Iterator[Seen]:
    operands = arguments(words, short="fsw").operands
    for name in operands[:1]:
        yield from place.file(Predicate.CONSUMES, name)
    for name in operands[1:]:
        yield from place.write(name)


# Processes and hosts


def _runs(short: str = "", *, skip: int = 0) -> Reader:
    """Make the reader of a command that runs another one: options, some operands, then the command."""

    def read(words: Words, place: CallLocation) -> Iterator[Seen]:
        left = list(arguments(words, short=short, first=True).operands)[skip:]
        while left and _ASSIGNMENT.match(left[0].text):
            del left[0]
        if left:
            yield from argument_list(left, place)

    return read


def _shell_command(words: Words, place: CallLocation) -> Iterator[Seen]:
    """A shell: with -c its text is read, else it runs a script or what it is told."""
    given = arguments(words, short="oO", first=True)
    if not given.has("c"):
        yield from place.opaque("sh")
    elif not given.operands:
        malformed(f"{place.call!r:.200} has a -c without a command line.")
    elif given.operands[0].known and given.operands[0].pattern is None:
        yield from shell(given.operands[0].text, replace(place, depth=place.depth + 1))
    else:
        yield from place.opaque("sh")


def _started(words: Words, place: CallLocation) -> Iterator[Seen]:
    """An agent's own tool that runs a program: it is opaque whatever it is given (KLIS-6 section 5)."""
    yield from place.opaque(words[0] if words else None)


def _connects(words: Words, place: CallLocation) -> Iterator[Seen]:
    """``nc host port``, ``connect host:port``."""
    given = arguments(words, short="wpsqiX")
    if given.has("e", "c", "l", "--exec", "--listen"):
        yield from place.opaque("nc")
    names = [name for name in given.operands if name.text not in {"tcp", "udp"}]
    if len(names) == 1 and (found := re.fullmatch(r"(.+):(\d+)", names[0].text)):
        yield from place.connect(found[1], found[2])
    elif len(names) >= 2:
        yield from place.connect(names[0], names[1])
    else:
        malformed(f"{place.call!r:.200} connects to no host and port.")


def _nothing(words: Words, place: CallLocation) -> Iterator[Seen]:
    yield from ()


COMMANDS: Final[dict[str, Reader]] = {
    **dict.fromkeys(_HARMLESS, _nothing),
    **dict.fromkeys(
        ["cat", "more", "wc", "tac", "rev", "file", "cmp", "comm", "realpath", "readlink", "cksum"], _reads()
    ),
    **dict.fromkeys(["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum"], _reads()),
    "head": _reads(short="nc", long=("lines", "bytes")),
    "tail": _reads(short="nc", long=("lines", "bytes", "pid", "sleep-interval")),
    "less": _reads(short="oOpPtTxyzbhj", writes=("o", "O", "--log-file", "--LOG-FILE")),
    "nl": _reads(short="bdfhilnsvw"),
    "od": _reads(short="AjNStw"),
    "hexdump": _reads(short="efns"),
    "strings": _reads(short="netT"),
    "stat": _reads(short="c", long=("format", "printf")),
    "diff": _reads(short="UCIxX", long=("label", "exclude")),
    "cut": _reads(short="bcdf", long=("bytes", "characters", "delimiter", "fields")),
    "paste": _reads(short="d"),
    "fold": _reads(short="w"),
    "column": _reads(short="cstNo"),
    "base64": _reads(short="w", long=("wrap",)),
    "sort": _reads(short="kotST", long=("key", "output", "field-separator"), writes=("o", "--output")),
    "jq": _reads(short="fL", skip=1),
    "uniq": _uniq,
    **dict.fromkeys(["grep", "egrep", "fgrep"], _searches),
    "rg": _ripgrep,
    **dict.fromkeys(["ls", "dir", "vdir"], _lists),
    **dict.fromkeys(["du", "tree"], _walks),
    "find": _find,
    **dict.fromkeys(["rm", "rmdir", "unlink"], _removes),
    "shred": _shreds,
    "mv": _moves,
    **dict.fromkeys(["cp", "install"], _copies),
    **dict.fromkeys(["ln", "link"], _links),
    "touch": _touches,
    **dict.fromkeys(["mkdir", "mkfifo"], _makes),
    "tee": _writes,
    **dict.fromkeys(["chmod", "chown", "chgrp"], _changes(1)),
    "truncate": _changes(0, short="sr"),
    "sed": _sed,
    "dd": _dd,
    "curl": curl,
    "wget": wget,
    **dict.fromkeys(["nc", "ncat", "netcat", "telnet", "connect", "dial"], _connects),
    **dict.fromkeys(["command", "builtin", "exec", "nohup", "time", "setsid", "env"], _runs("uCS")),
    "sudo": _runs("ugpCDhrtT"),
    "nice": _runs("n"),
    "timeout": _runs("ks", skip=1),
    "stdbuf": _runs("ioe"),
    **dict.fromkeys(_SHELLS, _shell_command),
    **dict.fromkeys(["run_command", "execute_command", "execute_binary", "run_binary"], _started),
}
"""The commands that are known, by name."""
