"""Location of a call, which turns names into observed resources.

Names become canonical resources (design section 7). An unknown name (a variable, a substitution) may be any file: it is
observed on the whole workspace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.observation import Seen
from world.klis.predicate import Predicate
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource_reading import canonical_resource
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.model.immutable_json import FrozenDict

__all__ = ["CallLocation", "Name", "malformed"]

_METHODS: Final = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"), Predicate.CONSUMES),
    **dict.fromkeys(("POST", "PUT", "PATCH"), Predicate.MUTATES),
    "DELETE": Predicate.DELETES,
}
_SCHEMES: Final = {80: "http", 443: "https"}
_NO_FILES: Final = re.compile(r"/dev/(?:null|zero|full|u?random|tty|std(?:in|out|err)|fd/\d+)")
_UNWRITABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff*]|%(?=[0-9A-Fa-f]{2})")


def malformed(message: str, details: Mapping[str, object] = FrozenDict()) -> NoReturn:
    """Raise for an invalid call text.

    Raises:
        RefusedError: ``INVALID_CALL``, always.
    """
    raise RefusedError(ErrorCode.INVALID_CALL, message, **details)


@dataclass(frozen=True, slots=True)
class Name:
    """A name in a call text.

    Args:
        text: the name, without quotes.
        pattern: index of its first wildcard, None without one.
        known: whether the text contains all of it, and no variable.
    """

    text: str
    pattern: int | None = None
    known: bool = True


@dataclass(frozen=True, slots=True)
class CallLocation:
    """The working directory of a call and its context.

    Args:
        call: the text, for messages.
        cwd: the working directory, absolute.
        exists: whether written files exist; None is unknown, and counts as existing.
        types: the resource types in force.
        names: which differences of paths are ignored.
        depth: the depth of nested shells.
    """

    call: str
    cwd: str = "/"
    exists: bool | None = None
    types: ResourceTypes = field(default=STANDARD, compare=False)
    names: NameComparison = BYTE_WISE
    depth: int = 0

    def at(self, name: object) -> CallLocation:
        """Return the location in another directory; None keeps the directory."""
        if name is None:
            return self
        folder = name if isinstance(name, Name) else Name(name) if isinstance(name, str) else Name("", known=False)
        return replace(self, cwd=self.path(folder.text) if folder.known and folder.pattern is None else "/")

    def path(self, text: str) -> str:
        """Return the absolute path of a name."""
        return text if text.startswith("/") else f"{self.cwd.rstrip('/')}/{text}"

    def file(self, predicate: Predicate, name: object, *, tree: bool = False, looks: bool = False) -> Iterator[Seen]:
        """Yield the effect on a file; nothing for an open descriptor.

        Args:
            predicate: the effect.
            name: the file; any other object than a name, string or descriptor may be any file.
            tree: whether the effect includes everything below.
            looks: whether only the names in a directory are read.
        """
        if isinstance(name, int):
            return
        file = name if isinstance(name, Name) else Name(name) if isinstance(name, str) else Name("", known=False)
        if not file.known:
            path, tree = "/", True
        elif file.pattern is not None:
            path, tree = self.path(file.text[: file.text.rfind("/", 0, file.pattern) + 1]), True
        else:
            path = self.path(file.text)
        if _NO_FILES.fullmatch(path):
            return
        written = _UNWRITABLE.sub(_escaped, path)
        yield self.resource(predicate, f"FILE:{written.rstrip('/')}/*" if tree else f"FILE:{written}", looks=looks)

    def write(self, name: object, *, tree: bool = False) -> Iterator[Seen]:
        """Yield a write to a file: MUTATES, or PROVIDES for a missing file."""
        yield from self.file(Predicate.PROVIDES if self.exists is False else Predicate.MUTATES, name, tree=tree)

    def request(self, method: str, url: object, *, tree: bool = False) -> Iterator[Seen]:
        """Yield a request to a URL or an API path; an unknown one is opaque.

        Raises:
            RefusedError: ``INVALID_CALL`` for a method that does not exist.
        """
        predicate = _METHODS.get(method.upper())
        if predicate is None:
            malformed(f"{method!r} in {self.call!r:.200} is no method of HTTP: {', '.join(_METHODS)}.")
        text = url.text if isinstance(url, Name) and url.known else url
        if not isinstance(text, str):
            yield from self.opaque(None)
        elif text.startswith("/") and not text.startswith("//"):
            yield self.resource(predicate, f"API_ENDPOINT:{_UNWRITABLE.sub(_escaped, text.partition('?')[0])}")
        else:
            text = text.partition("#")[0].replace("*", "%2A")
            text = text if "://" in text else f"http://{text.removeprefix('//')}"
            yield self.resource(predicate, f"URL:{text.rstrip('/')}/*" if tree else f"URL:{text}")

    def connect(self, host: object, port: object) -> Iterator[Seen]:
        """Yield a connection to a host."""
        text = host.text if isinstance(host, Name) and host.known else host
        number = port.text if isinstance(port, Name) else port
        if not isinstance(text, str) or not isinstance(number, int | str) or not str(number).isdecimal():
            yield from self.opaque(None)
            return
        shown = f"[{text}]" if ":" in text and not text.startswith("[") else text
        seen = self.resource(Predicate.CONSUMES, f"URL:{_SCHEMES.get(int(number), 'tcp')}://{shown}:{number}")
        yield replace(seen, address=(text.strip("[]").lower(), int(number)))

    def process(self, executable: object) -> Seen:
        """Return the start of a program, named by the last part of its path, or ``?``."""
        text = executable.text if isinstance(executable, Name) else executable
        name = text.rstrip("/").rpartition("/")[2] if isinstance(text, str) else ""
        return self.resource(Predicate.PROVIDES, f"PROCESS:{_UNWRITABLE.sub(_escaped, name) or '?'}")

    def opaque(self, tool: object) -> Iterator[Seen]:
        """Yield the assumed effects of an opaque tool (KO-5.1)."""
        started = self.process(tool)
        yield started
        for seen in self.file(Predicate.MUTATES, self.cwd, tree=True):
            yield replace(seen, opaque_of=started.resource)

    def resource(self, predicate: Predicate, text: str, *, looks: bool = False) -> Seen:
        """Return the effect on a resource.

        Raises:
            RefusedError: ``INVALID_CALL`` for an invalid resource name.
        """
        try:
            found = canonical_resource(text, types=self.types, names=self.names, literal_stars=True)
        except RefusedError as refused:
            malformed(f"{self.call!r:.200} names no resource: {refused.message}", {"resource": text})
        return Seen(predicate, found, call=self.call, looks=looks)


def _escaped(found: re.Match[str]) -> str:
    """Escape characters that a resource name cannot contain, byte by byte."""
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
