"""Readers of shell commands that read and write files, by name.

A reader yields the side effects of one command with its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from conformance.calls.options import Arguments, arguments
from conformance.calls.place import CallLocation, Name, malformed
from conformance.calls.sed import touches_more
from world.klis.observation import Seen
from world.klis.predicate import Predicate

__all__ = ["FILE_COMMANDS", "Reader", "Words"]

Words = Sequence[Name]
"""The words of a command after its name."""

Reader = Callable[[Words, CallLocation], Iterator[Seen]]
"""Function that yields the side effects of a command."""


def _reads(*, short: str = "", long: Sequence[str] = (), skip: int = 0, writes: Sequence[str] = ()) -> Reader:
    """Return the reader of a command that reads its operands.

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
    """Read ``grep``: a pattern, then files, or the working directory if recursive."""
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
    """Return the sources and the target of each; a directory gets the source names."""
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
        if not given.has("s", "--symbolic"):  # a hard link allows changes of the old file
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
    """Return the reader of a command that changes its operands after the first ones."""

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
    """Return a mode like ``-w`` as the operand that it is."""
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


FILE_COMMANDS: Final[dict[str, Reader]] = {
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
}
"""The readers by name of the command."""
