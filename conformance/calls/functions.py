"""Side effects of functions of Node and Python on files, hosts and processes.

An unknown function is an opaque tool (KLIS-6 section 5; KO-5.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from conformance.calls.commands import argument_list, shell
from conformance.calls.function_names import file_of, known_name, path_of
from conformance.calls.literals import UNKNOWN, Flags, ParsedCall, read_calls
from conformance.calls.place import CallLocation, Name, malformed
from conformance.calls.pure import HANDLES, PURE, PURE_MODULES
from world.klis.observation import Seen
from world.klis.predicate import Predicate

__all__ = ["functions"]

Reader = Callable[[ParsedCall, CallLocation], Iterator[Seen]]

_WRITING: Final = frozenset({"WRONLY", "RDWR", "CREAT", "TRUNC", "APPEND", "TMPFILE"})
_VERBS: Final = frozenset({"get", "head", "options", "post", "put", "patch", "delete"})


def functions(text: str, place: CallLocation) -> Iterator[Seen]:
    """Yield the side effects of the calls in a text.

    Raises:
        RefusedError: ``INVALID_CALL``.
    """
    calls = read_calls(text)
    names = re.findall(r"\b(?:process\.env\.(\w+)|(?:process\.env|os\.environ)\[\s*['\"](\w+)['\"]\s*\])", text)
    for one, other in names:
        yield place.resource(Predicate.CONSUMES, f"ENV:{one or other}")
    if not calls and not names:
        malformed(f"{text!r:.200} is no call.")
    for call in calls:
        yield from _one(call, place)


def _one(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    if call.receiver is not None:
        yield from _method(call, place)
        return
    name = known_name(call.name)
    reader = FUNCTIONS.get(name)
    last = name.rpartition(".")[2]
    if reader is not None:
        yield from reader(call, place)
    elif name in PURE or name.partition(".")[0] in PURE_MODULES:
        return
    elif last in _VERBS and call.args and isinstance(call.args[0], str) and re.match(r"(?:https?:/)?/", call.args[0]):
        yield from _verb(call, place)
    elif last == "open" and len(call.args) > 1 and str(call.args[0]).upper() == str(call.args[0]) and call.args[0]:
        yield from place.request(str(call.args[0]), call.args[1])
    else:
        yield from place.opaque(call.name)


def _method(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read a method of a value: of a path, a request, or an open handle."""
    receiver, last = call.receiver, call.name.rpartition(".")[2]
    path = path_of(receiver)
    if path is not None and f"path.{last}" in FUNCTIONS:
        yield from FUNCTIONS[f"path.{last}"](replace(call, args=(path, *call.args)), place)
    elif last == "connect" and isinstance(receiver, ParsedCall):
        yield from _socket(call, place)
    elif not (last in HANDLES or isinstance(receiver, str) or f"path.{last}" in PURE):
        yield from place.opaque(call.name)


def _each(predicate: Predicate | None, index: int = 0, *names: str, tree: bool = False, looks: bool = False) -> Reader:
    """Return the reader of a function with one effect on a file; None is a write."""
    may_be_whole = predicate is Predicate.DELETES and "options" in names

    def read(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
        given = call.arg(index, *names, "path", "file", "filename", "name", "src", "dst")
        if given is None and len(call.args) <= index:
            if index or names:
                malformed(f"{place.call!r:.200} says no file.")
            given = "." if looks or tree else malformed(f"{place.call!r:.200} says no file.")
        whole = tree or call.is_set("recursive") or (may_be_whole and call.arg(index + 1) is UNKNOWN)
        name = file_of(given)
        if predicate is None:
            yield from place.write(name)
        elif predicate in {Predicate.PROVIDES, Predicate.MUTATES}:
            yield from place.file(predicate, name, tree=tree)
        else:
            yield from place.file(predicate, name, tree=whole, looks=looks and not whole)

    return read


def _then(*readers: Reader) -> Reader:
    def read(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
        for reader in readers:
            yield from reader(call, place)

    return read


def _copied(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    tree = call.is_set("recursive") or call.name.endswith("copytree")
    yield from place.file(Predicate.CONSUMES, file_of(call.arg(0, "src", "source")), tree=tree)
    yield from place.write(file_of(call.arg(1, "dst", "dest", "target")), tree=tree)


def _opened(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read ``open`` with a mode or flags; an unknown mode counts as a write."""
    options = call.option("flags")
    mode = options if options is not None else call.arg(1, "mode", "flags")
    name = file_of(call.arg(0, "path", "file", "name"))
    if isinstance(mode, dict) or mode is None:
        mode = "r"
    if isinstance(mode, int) and not isinstance(mode, bool):
        writes, makes = mode & 3 != 0 or mode & 0o100 != 0, mode & 0o300 == 0o300
    elif isinstance(mode, Flags):
        writes, makes = not _WRITING.isdisjoint(mode), "EXCL" in mode
    elif isinstance(mode, str):
        writes, makes = not set("wax+").isdisjoint(mode), "x" in mode
    else:
        writes, makes = True, False
    if makes:
        yield from place.file(Predicate.PROVIDES, name)
    elif writes:
        yield from place.write(name)
    else:
        yield from place.file(Predicate.CONSUMES, name)


def _stream(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    flags = call.option("flags")
    if isinstance(flags, str) and "x" in flags:
        yield from place.file(Predicate.PROVIDES, file_of(call.arg(0)))
    else:
        yield from place.write(file_of(call.arg(0)))


def _temporary(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read a function that makes a random name in a folder."""
    prefix = file_of(call.arg(0, "prefix") if call.name.startswith("fs") else call.option("dir") or "/tmp")
    if isinstance(prefix, str):
        folder = (
            prefix.rpartition("/")[0] or ("/" if prefix.startswith("/") else ".")
            if call.name.startswith("fs")
            else prefix
        )
        yield from place.file(Predicate.PROVIDES, folder, tree=True)
    else:
        yield from place.file(Predicate.PROVIDES, UNKNOWN)


def _globbed(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    pattern = file_of(call.arg(0, "pathname", "pattern"))
    found = re.search(r"[*?\[{]", pattern) if isinstance(pattern, str) else None
    yield from place.file(Predicate.CONSUMES, Name(pattern, found.start()) if found else pattern)


def _path_globbed(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    yield from place.file(Predicate.CONSUMES, file_of(call.arg(0)), tree=True)


def _database(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    name = file_of(call.arg(0, "database"))
    if name not in {":memory:", ""} if isinstance(name, str) else True:
        yield from place.write(name)


# Processes


def _system(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read a function that runs a command line in a shell."""
    yield from _started_line(call.arg(0, "command", "cmd", "args"), place.at(_file_or_none(call.option("cwd"))))


def _started(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read a function that starts a program with arguments, or in a shell."""
    place = place.at(_file_or_none(call.option("cwd")))
    program = call.arg(0, "args", "file", "command")
    listed = program if isinstance(program, list) else None
    if listed is None:
        following = call.args[1:]
        listed = [program, *(following[0] if following and isinstance(following[0], list) else _texts(following))]
    if call.is_set("shell") and all(isinstance(one, str) for one in listed):
        yield from _started_line(" ".join(listed), place)
    elif not listed or not isinstance(listed[0], str) or not listed[0]:
        yield from place.opaque(None)
    else:
        words = [Name(one) if isinstance(one, str) else Name("", known=False) for one in listed]
        yield from _with_process(argument_list(words, place), place.process(words[0]))


def _texts(values: tuple[Any, ...]) -> Iterator[Any]:
    return (value for value in values if isinstance(value, str))


def _file_or_none(value: Any) -> Any:
    return None if value is None else file_of(value)


def _started_line(line: Any, place: CallLocation) -> Iterator[Seen]:
    if not isinstance(line, str):
        yield from place.opaque("sh")
        return
    attempts = list(shell(line, replace(place, depth=place.depth + 1)))
    words = line.split()
    yield from _with_process(attempts, place.process(words[0] if words else "sh"))


def _with_process(attempts: Any, process: Seen) -> Iterator[Seen]:
    """Yield the start of a process and its side effects, without repeating the start."""
    found = list(attempts)
    if not any(one.resource == process.resource for one in found):
        yield process
    yield from found


def _forked(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    yield from place.at(_file_or_none(call.option("cwd"))).opaque("node")


def _opaque(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    given = call.arg(0, "path", "file", "command", "name")
    if isinstance(given, list) and given:
        given = given[0]
    program = given.split()[0] if isinstance(given, str) and given.strip() else call.name
    yield from place.at(_file_or_none(call.option("cwd"))).opaque(program)


# Hosts


def _verb(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    yield from place.request(call.name.rpartition(".")[2], _url(call.arg(0, "url")))


def _url(value: Any) -> Any:
    if isinstance(value, ParsedCall) and value.name in {"URL", "Request", "urllib.request.Request"} and value.args:
        return _url(value.args[0])
    return value


def _fetched(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read a request whose method is an option, or both in one object."""
    first = call.arg(0, "url")
    method = call.option("method")
    if method is None and isinstance(first, ParsedCall):
        method = first.option("method")
    if isinstance(first, dict):
        first = first.get("url", UNKNOWN)
    if method is not None and not isinstance(method, str):
        yield from place.opaque(call.name)
    else:
        yield from place.request(method or "GET", _url(first))


def _asked(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read ``request(method, url)``."""
    method = call.arg(0, "method")
    if isinstance(method, str):
        yield from place.request(method, _url(call.arg(1, "url")))
    else:
        yield from place.opaque(call.name)


def _url_opened(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    first = call.arg(0, "url")
    data = call.arg(1, "data")
    if data is None and isinstance(first, ParsedCall):
        data = first.arg(1, "data")
    method = first.option("method") if isinstance(first, ParsedCall) else None
    yield from place.request(method if isinstance(method, str) else "POST" if data is not None else "GET", _url(first))


def _retrieved(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    yield from place.request("GET", _url(call.arg(0, "url")))
    target = call.arg(1, "filename")
    yield from place.write(file_of(target)) if target is not None else _temporary(call, place)


def _socket(call: ParsedCall, place: CallLocation) -> Iterator[Seen]:
    """Read a connection: host and port in any form, or a local socket."""
    values: list[Any] = []
    for one in call.args:
        values += (
            one
            if isinstance(one, list)
            else [one.get("host", "localhost"), one.get("port")]
            if isinstance(one, dict)
            else [one]
        )
    texts = [one for one in values if isinstance(one, str) and one not in {"tcp", "tcp4", "tcp6", "udp"}]
    port = next((one for one in values if isinstance(one, int)), None)
    if texts and port is None and (found := re.fullmatch(r"(.+):(\d+)", texts[0])):
        yield from place.connect(found[1], found[2])
    elif texts and port is None and texts[0].startswith("/"):
        yield from place.file(Predicate.MUTATES, texts[0])
    else:
        yield from place.connect(texts[0] if texts else UNKNOWN if UNKNOWN in values else "localhost", port)


_READ: Final = _each(Predicate.CONSUMES)
_EXISTS: Final = _each(Predicate.DEPENDS_ON)  # KLIS-1 section 3: checking existence
_WRITE: Final = _each(None)
_CHANGE: Final = _each(Predicate.MUTATES)
_MAKE: Final = _each(Predicate.PROVIDES)
_REMOVE: Final = _each(Predicate.DELETES)
_REMOVE_TREE: Final = _each(Predicate.DELETES, tree=True)
_LIST: Final = _each(Predicate.CONSUMES, looks=True)
_WALK: Final = _each(Predicate.CONSUMES, tree=True)
_RENAME: Final = _then(_each(Predicate.RENAMES), _each(Predicate.PROVIDES, 1, "dst", "dest", "target"))
_SYMLINK: Final = _each(Predicate.PROVIDES, 1, "dst", "target")
_LINK: Final = _then(_CHANGE, _SYMLINK)


def _named(module: str, names: str, reader: Reader) -> dict[str, Reader]:
    return {f"{module}.{name}" if module else name: reader for name in names.split()}


FUNCTIONS: Final[dict[str, Reader]] = {
    **_named("fs", "readFile createReadStream access stat lstat statfs realpath readlink watch watchFile", _READ),
    **_named("fs", "openAsBlob readTextFile readJson readJSON", _READ),
    **_named("fs", "exists pathExists", _EXISTS),
    **_named("fs", "writeFile appendFile writeTextFile outputFile outputJson writeJson writeJSON ensureFile", _WRITE),
    **_named("fs", "chmod lchmod chown lchown utimes lutimes truncate utime", _CHANGE),
    **_named("fs", "mkdir ensureDir mkdirp mkdirs", _MAKE),
    **_named("fs", "unlink", _REMOVE),
    **_named("fs", "rm rmdir", _each(Predicate.DELETES, 0, "options")),
    **_named("fs", "remove emptyDir rimraf", _REMOVE_TREE),
    **_named("fs", "readdir opendir readDir", _LIST),
    **_named("fs", "copyFile cp copy", _copied),
    **_named("fs", "rename move", _RENAME),
    **_named("fs", "link", _LINK),
    **_named("fs", "symlink", _SYMLINK),
    **_named("fs", "mkdtemp mkdtempDisposable", _temporary),
    "fs.createWriteStream": _stream,
    "fs.open": _opened,
    "rimraf": _REMOVE_TREE,
    **_named("", "open io.open codecs.open os.open gzip.open bz2.open lzma.open tarfile.open zipfile.ZipFile", _opened),
    **_named("os", "remove unlink rmdir removedirs", _REMOVE),
    **_named("os", "stat lstat access readlink", _READ),
    **_named("os", "path.exists path.isfile path.isdir path.islink path.lexists", _EXISTS),
    **_named("os", "path.getsize path.getmtime path.getctime path.realpath getxattr listxattr statvfs", _READ),
    **_named("os", "listdir scandir", _LIST),
    **_named("os", "walk fwalk", _WALK),
    **_named("os", "mkdir makedirs mkfifo mknod", _MAKE),
    **_named("os", "chmod chown lchown lchmod utime truncate setxattr removexattr chflags", _CHANGE),
    **_named("os", "rename renames replace", _RENAME),
    **_named("os", "link", _LINK),
    **_named("os", "symlink", _SYMLINK),
    **_named("shutil", "rmtree", _REMOVE_TREE),
    **_named("shutil", "copy copy2 copyfile copytree", _copied),
    **_named("shutil", "move", _RENAME),
    **_named("shutil", "copymode copystat", _then(_READ, _each(Predicate.MUTATES, 1, "dst"))),
    **_named("shutil", "chown", _CHANGE),
    **_named("glob", "glob iglob", _globbed),
    **_named("tempfile", "mkstemp mkdtemp NamedTemporaryFile TemporaryFile TemporaryDirectory", _temporary),
    **_named("path", "read_text read_bytes stat lstat readlink owner group", _READ),
    **_named("path", "exists is_file is_dir is_symlink", _EXISTS),
    **_named("path", "write_text write_bytes touch", _WRITE),
    **_named("path", "unlink rmdir", _REMOVE),
    **_named("path", "mkdir", _MAKE),
    **_named("path", "iterdir", _LIST),
    **_named("path", "glob rglob walk", _path_globbed),
    **_named("path", "chmod lchmod", _CHANGE),
    **_named("path", "rename replace", _RENAME),
    **_named("path", "open", _opened),
    "path.symlink_to": _each(Predicate.PROVIDES),
    "path.hardlink_to": _then(_each(Predicate.MUTATES, 1, "target"), _MAKE),
    "sqlite3.connect": _database,
    **_named("child_process", "exec", _system),
    **_named("child_process", "execFile spawn", _started),
    "child_process.fork": _forked,
    **_named("", "os.system os.popen subprocess.getoutput subprocess.getstatusoutput", _system),
    **_named("", "asyncio.create_subprocess_shell", _system),
    **_named("subprocess", "run call check_call check_output Popen", _started),
    **_named("", "asyncio.create_subprocess_exec os.execv os.execvp os.execl os.execlp execa execaSync", _started),
    **_named("", "run_command execute_command execute_binary run_binary", _opaque),
    **_named("", "fetch axios axios.request got http.request https.request", _fetched),
    **_named("", "http.get https.get", _verb),
    **_named("", "requests.request httpx.request httpx.stream", _asked),
    "urllib.request.urlopen": _url_opened,
    "urlopen": _url_opened,
    "urllib.request.urlretrieve": _retrieved,
    **_named("", "net.connect net.createConnection tls.connect net.Dial socket.create_connection", _socket),
    **_named("", "socket.connect sock.connect client.connect s.connect asyncio.open_connection dial connect", _socket),
    **_named("", "WebSocket EventSource", lambda call, place: place.request("GET", call.arg(0, "url"))),
}
"""The readers of known functions; methods of a path have the module ``path``."""
