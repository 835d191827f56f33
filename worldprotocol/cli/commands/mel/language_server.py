"""Language server of MEL: diagnostics, hover and definitions over stdin and stdout.

It compiles a document whenever that changes and answers from the last version that compiled. The protocol is that of
the package pygls, which the extra ``lsp`` installs.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from world.core.mel.compiling import CompiledMel
from world.core.mel.diagnostics import Diagnostic, SourceText
from world.core.mel.formatting import format_tokens
from world.core.mel.functions import KINDS, SUGAR, arity
from world.core.mel.loading import checked_mel
from world.extras import missing_extra

if TYPE_CHECKING:
    from lsprotocol import types
    from pygls.lsp.server import LanguageServer

__all__ = ["MelDocuments", "serve"]


class MelDocuments:
    """The open documents, compiled.

    Positions are those of the protocol: lines from 0, and columns from 0 in UTF-16 code units.
    """

    def __init__(self) -> None:
        """Begin without documents."""
        self._newest: dict[str, CompiledMel] = {}
        self._usable: dict[str, CompiledMel] = {}

    def update(self, uri: str, text: str) -> CompiledMel:
        """Compile the text of a document and return what became of it."""
        compiled = checked_mel(text, uri.rpartition("/")[2] or uri)
        self._newest[uri] = compiled
        if compiled.places:
            self._usable[uri] = compiled
        return compiled

    def close(self, uri: str) -> None:
        """Forget a document."""
        self._newest.pop(uri, None)
        self._usable.pop(uri, None)

    def formatted(self, uri: str) -> str | None:
        """Return a document in the uniform layout, None where it has errors."""
        compiled = self._newest.get(uri)
        return None if compiled is None or compiled.schema is None else format_tokens(compiled.source.text)

    def definition(self, uri: str, line: int, column: int) -> tuple[int, int] | None:
        """Return the span of the declaration of the name at a position, None where there is no such name."""
        compiled, name = self._name_at(uri, line, column)
        return None if compiled is None else _declared_at(compiled, name, self._offset(compiled, line, column))

    def hover(self, uri: str, line: int, column: int) -> str | None:
        """Return what is declared or built in under the name at a position, as Markdown."""
        compiled, name = self._name_at(uri, line, column)
        if compiled is None:
            return None
        place = _declared_at(compiled, name, self._offset(compiled, line, column))
        if place is not None:
            return f"```mel\n{_declaration(compiled.source, place)}\n```"
        word = name.rpartition(" ")[2]
        if word in KINDS or word in SUGAR:
            low, high = arity(word)
            count = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} or {high}"
            kind = f"; lowers to `{KINDS[word]}`" if word in KINDS else ""
            return f"`{word}`: function of {count} argument{'s' * (count != '1')}{kind}"
        return None

    def _offset(self, compiled: CompiledMel, line: int, column: int) -> int:
        return compiled.source.offset(line + 1, _characters(_line(compiled.source, line), column) + 1)

    def _name_at(self, uri: str, line: int, column: int) -> tuple[CompiledMel | None, str]:
        """Return the compiled document and the name at a position, with what kind of name it is."""
        compiled = self._usable.get(uri)
        newest = self._newest.get(uri)
        if compiled is None or newest is None or line >= newest.source.text.count("\n") + 1:
            return None, ""
        offset = self._offset(compiled, line, column)
        at = bisect_right(compiled.reads, ((offset, len(compiled.source.text) + 1), ""))
        for span, name in reversed(compiled.reads[:at]):
            if span[0] <= offset <= span[1]:
                return compiled, name
            if span[1] < offset:
                break
        return compiled, _word_at(compiled.source.text, offset)


def _line(source: SourceText, line: int) -> str:
    return source.line(min(line + 1, source.text.count("\n") + 1))


def _characters(text: str, units: int) -> int:
    """Return how many characters the first UTF-16 code units of a text are."""
    return len(text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore"))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _word_at(text: str, offset: int) -> str:
    start = end = offset
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return f"word {text[start:end]}"


def _declared_at(compiled: CompiledMel, name: str, offset: int) -> tuple[int, int] | None:
    kind, _, word = name.partition(" ")
    path = {
        "state": f"$.state.fields.{word}",
        "computed": f"$.computed.fields.computed.{word}",
        "type": f"$.types.{word}",
        "flow": f"flow {word}",
    }.get(kind)
    if path is not None:
        return compiled.places.get(path)
    if kind == "word":
        declared = [f"$.state.fields.{word}", f"$.computed.fields.computed.{word}", f"$.actions.{word}", f"flow {word}"]
        found = next((compiled.places[one] for one in declared if one in compiled.places), None)
        return found if found is not None and found[0] <= offset <= found[1] else None
    before = [span for span in compiled.params.get(word, ()) if span[0] <= offset]
    return max(before, default=None)


def _declaration(source: SourceText, place: tuple[int, int]) -> str:
    line, _ = source.position(place[0])
    return source.line(line).strip()[:300]


def serve() -> None:
    """Answer an editor over stdin and stdout until it says exit.

    Raises:
        RefusedError: ``NOT_LOADED`` without the package pygls.
    """
    try:
        import pygls.lsp.server  # noqa: F401 - whether it is installed
    except ImportError:
        raise missing_extra("Language servers", "pygls", "lsp") from None
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:  # pygls closes it, and the command still flushes its own
        _server(MelDocuments()).start_io(stdout=out)


def _server(documents: MelDocuments) -> LanguageServer:
    from lsprotocol import types
    from pygls.lsp.server import LanguageServer

    server = LanguageServer("world-protocol-mel", version("world-protocol"))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        _publish(server, documents, params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        _publish(server, documents, params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        documents.close(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        text = documents.hover(params.text_document.uri, params.position.line, params.position.character)
        return None if text is None else types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: types.DefinitionParams) -> types.Location | None:
        uri = params.text_document.uri
        place = documents.definition(uri, params.position.line, params.position.character)
        if place is None:
            return None
        source = SourceText(uri, server.workspace.get_text_document(uri).source)
        return types.Location(uri, _range(source, *place))

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        uri = params.text_document.uri
        after = documents.formatted(uri)
        source = SourceText(uri, server.workspace.get_text_document(uri).source)
        return [] if after is None else [types.TextEdit(_range(source, 0, len(source.text)), after)]

    return server


def _publish(server: LanguageServer, documents: MelDocuments, uri: str) -> None:
    from lsprotocol import types

    document = server.workspace.get_text_document(uri)
    compiled = documents.update(uri, document.source)
    found = [*compiled.errors, *compiled.warnings, *compiled.advice]
    shown = [_diagnostic(compiled.source, one) for one in found]
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown, document.version))


def _diagnostic(source: SourceText, one: Diagnostic) -> types.Diagnostic:
    from lsprotocol import types

    severity = types.DiagnosticSeverity.Warning if one.is_warning else types.DiagnosticSeverity.Error
    message = f"{one.message}\n{one.hint}" if one.hint else one.message
    return types.Diagnostic(_range(source, one.start, one.end), message, severity, code=one.code, source="mel")


def _range(source: SourceText, start: int, end: int) -> types.Range:
    from lsprotocol import types

    def position(offset: int) -> Any:
        line, column = source.position(offset)
        return types.Position(line - 1, _units(source.line(line)[: column - 1]))

    return types.Range(position(start), position(end))
