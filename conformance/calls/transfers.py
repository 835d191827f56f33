"""``curl`` and ``wget``: requests and the files that they read and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from conformance.calls.options import Arguments, arguments
from conformance.calls.place import CallLocation, Name, malformed
from world.klis.observation import Seen
from world.klis.predicate import Predicate

__all__ = ["curl", "wget"]

_CURL_DATA: Final = (
    "d",
    "F",
    "--data",
    "--data-raw",
    "--data-binary",
    "--data-urlencode",
    "--data-ascii",
    "--form",
    "--json",
)
_CURL_LONG: Final = (
    *("request", "output", "data", "data-raw", "data-binary", "data-urlencode", "data-ascii", "form", "json", "header"),
    *("user", "user-agent", "referer", "cookie", "cookie-jar", "upload-file", "max-time", "connect-timeout", "retry"),
    *("url", "proxy", "cacert", "cert", "key", "resolve", "write-out", "dump-header", "config", "range", "output-dir"),
)
_WGET_LONG: Final = (
    *("output-document", "directory-prefix", "post-data", "post-file", "body-data", "method", "header", "user-agent"),
    *("tries", "timeout", "level", "user", "password", "output-file", "append-output", "input-file"),
)


def curl(words: Sequence[Name], place: CallLocation) -> Iterator[Seen]:
    """Yield the side effects of ``curl``.

    Raises:
        RefusedError: ``INVALID_CALL`` without a URL.
    """
    given = arguments(words, short="XodFTcbHuAemwDKxErCYyzUtQP", long=_CURL_LONG)
    urls = [*given.operands, *given.values("--url")]
    if given.has("K", "--config"):
        yield from place.opaque("curl")
    elif not urls:
        malformed(f"{place.call!r:.200} names no URL.")
    for url in urls:
        yield from place.request(_curl_method(given), _bare(url))
    for name in _curl_reads(given):
        yield from place.file(Predicate.CONSUMES, name)
    folder = next(iter(given.values("--output-dir")), Name("."))
    written = given.values("o", "--output")
    if given.has("O", "--remote-name", "--remote-name-all"):
        written += [_last(url) for url in urls]
    for name in written:
        if name.text != "-":
            yield from place.at(folder).write(name)
    for name in given.values("c", "--cookie-jar", "D", "--dump-header"):
        if name.text != "-":
            yield from place.write(name)


def _curl_method(given: Arguments) -> str:
    asked = given.values("X", "--request")
    if asked:
        return asked[-1].text
    if given.has("T", "--upload-file"):
        return "PUT"
    if given.has("I", "--head"):
        return "HEAD"
    return "POST" if given.has(*_CURL_DATA) and not given.has("G", "--get") else "GET"


def _curl_reads(given: Arguments) -> Iterator[Name]:
    yield from given.values("T", "--upload-file", "--cacert", "--cert", "E", "--key")
    for name in given.values(*_CURL_DATA):
        _, sign, path = name.text.partition("@")
        if sign and not given.has("--data-raw"):
            yield Name(path.partition(";")[0], None, name.known)
    for name in given.values("b", "--cookie"):
        if "=" not in name.text:
            yield name


def wget(words: Sequence[Name], place: CallLocation) -> Iterator[Seen]:
    """Yield the side effects of ``wget``, which may write the URL's last name.

    Raises:
        RefusedError: ``INVALID_CALL`` without a URL.
    """
    given = arguments(words, short="OPotTlUaieQwBADRIX", long=_WGET_LONG)
    tree = given.has("r", "m", "p", "--recursive", "--mirror", "--page-requisites")
    method = next(
        (one.text for one in given.values("--method")), "POST" if given.has("--post-data", "--post-file") else "GET"
    )
    if given.has("i", "e", "--input-file", "--execute"):
        yield from place.opaque("wget")
    elif not given.operands:
        malformed(f"{place.call!r:.200} names no URL.")
    for url in given.operands:
        yield from place.request(method, _bare(url), tree=tree)
    for name in given.values("--post-file"):
        yield from place.file(Predicate.CONSUMES, name)
    target = given.values("O", "--output-document")
    folder = next(iter(given.values("P", "--directory-prefix")), Name("."))
    if tree:
        yield from place.write(folder, tree=True)
    elif not given.has("--spider"):
        for name in target or [_last(url) for url in given.operands]:
            if name.text != "-":
                yield from (place if target else place.at(folder)).write(name)
    for name in given.values("o", "a", "--output-file", "--append-output"):
        yield from place.write(name)


def _bare(url: Name) -> Name:
    """Return a URL whose ``?`` starts a query instead of being a wildcard."""
    return Name(url.text, None, url.known)


def _last(url: Name) -> Name:
    rest = url.text.partition("://")[2] or url.text
    path = rest.partition("?")[0].partition("#")[0]
    return (
        Name(path.rpartition("/")[2] if "/" in path else "", None, url.known)
        if "/" in path and not path.endswith("/")
        else Name("index.html", None, url.known)
    )
