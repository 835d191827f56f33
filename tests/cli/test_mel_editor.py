"""Editor support for MEL: the language server over stdin and stdout, and the TextMate grammar in a real engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient
from textmate_grammar.parsers.base import LanguageParser

from tests.cli.realm import environment
from world.core.mel.functions import KINDS, SUGAR
from worldprotocol.cli.commands import mel

GRAMMAR = Path(mel.__file__).parent / "mel.tmLanguage.json"
URI = "file:///shop.mel"
SHOP = """domain Shop {
  type Row = { id: string }
  state { stock: number = 3  rows: Array<Row> = [] }
  computed half = stock / 2
  flow need(n: number) { when n > half { fail "TOO_MANY" } }
  action sell(n: number) {
    include need(n)
    when true { patch stock = abs(stock - n) } /* 😀 */ stop
  }
}
"""


class Editor:
    """A real client that has started the language server."""

    def __init__(self) -> None:
        self.client = LanguageClient("tests", "1")
        self.reports: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def received(params: types.PublishDiagnosticsParams) -> None:
            self.reports.put_nowait(params)

    async def open(self, text: str) -> types.PublishDiagnosticsParams:
        """Open a document and return its diagnostics."""
        await self.client.start_io(sys.executable, "-m", "worldprotocol", "domain", "lsp", env=environment() | ENV)
        await self.client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
        self.client.initialized(types.InitializedParams())
        document = types.TextDocumentItem(uri=URI, language_id="mel", version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        return await self.reports.get()

    async def change(self, text: str) -> types.PublishDiagnosticsParams:
        """Replace the document's text and return its diagnostics."""
        document = types.VersionedTextDocumentIdentifier(version=2, uri=URI)
        change = types.TextDocumentContentChangeWholeDocument(text=text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        return await self.reports.get()

    async def definition(self, word: str, at: int = 0) -> str | None:
        """Return the text of the place that the definition of a word in a line of SHOP is at."""
        found = await self.client.text_document_definition_async(types.DefinitionParams(*_place(word, at)))
        if found is None:
            return None
        assert isinstance(found, types.Location)
        start, end = found.range.start, found.range.end
        return f"{start.line + 1}:{SHOP.splitlines()[start.line][start.character : end.character]}"

    async def hover(self, word: str, at: int = 0) -> str | None:
        """Return what is shown for a word of SHOP."""
        found = await self.client.text_document_hover_async(types.HoverParams(*_place(word, at)))
        if found is None:
            return None
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    async def close(self) -> None:
        """End the server."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


ENV = {"PYTHONWARNINGS": "ignore"}  # of the packages that the server runs on


def _place(word: str, at: int) -> tuple[types.TextDocumentIdentifier, types.Position]:
    offset = -1
    for _ in range(at + 1):
        offset = SHOP.index(word, offset + 1)
    line = SHOP.count("\n", 0, offset)
    column = len(SHOP[SHOP.rfind("\n", 0, offset) + 1 : offset].encode("utf-16-le")) // 2
    return types.TextDocumentIdentifier(URI), types.Position(line, column + 1)


async def session() -> dict[str, Any]:
    editor = Editor()
    try:
        first = await editor.open(SHOP)
        said = {
            "state": await editor.definition("stock / 2"),
            "computed": await editor.definition("half {"),
            "type": await editor.definition("Row>"),
            "flow": await editor.definition("need(n)"),
            "param": await editor.definition("n) }"),
            "nothing": await editor.definition("TOO_MANY"),
            "hover of a field": await editor.hover("stock / 2"),
            "hover of a function": await editor.hover("abs("),
            "hover of nothing": await editor.hover("TOO_MANY"),
        }
        wrong = await editor.change(SHOP.replace("stock / 2", "stok / 2").replace("😀 */ stop", "😀 */ stopp"))
        undefined = await editor.change(SHOP.replace("stock / 2", "stok / 2"))
        await editor.change(SHOP)
        options = types.FormattingOptions(tab_size=2, insert_spaces=True)
        edits = await editor.client.text_document_formatting_async(
            types.DocumentFormattingParams(types.TextDocumentIdentifier(URI), options)
        )
    finally:
        await editor.close()
    return {"first": first, "said": said, "wrong": wrong, "undefined": undefined, "edits": edits}


@pytest.mark.slow
def test_the_language_server_answers_an_editor_over_stdin_and_stdout() -> None:
    found = asyncio.run(asyncio.wait_for(session(), 60))
    assert [(one.code, one.severity) for one in found["first"].diagnostics] == [
        ("E007", types.DiagnosticSeverity.Warning)
    ]
    assert found["said"] == {
        "state": "3:stock",
        "computed": "4:half",
        "type": "2:Row",
        "flow": "5:need",
        "param": "6:n",
        "nothing": None,
        "hover of a field": "```mel\nstate { stock: number = 3  rows: Array<Row> = [] }\n```",
        "hover of a function": "`abs`: function of 1 argument; lowers to `abs`",
        "hover of nothing": None,
    }
    (wrong,) = found["wrong"].diagnostics
    assert (wrong.code, wrong.source) == ("MEL_PARSER", "mel")
    line = SHOP.splitlines()[7]
    units = len(line[: line.index("stop")].encode("utf-16-le")) // 2
    assert (wrong.range.start.line, wrong.range.start.character) == (7, units)
    (undefined,) = [one for one in found["undefined"].diagnostics if one.severity == types.DiagnosticSeverity.Error]
    assert undefined.message == "Undefined identifier 'stok'\nDid you mean 'stock'?"
    (edit,) = found["edits"]
    assert edit.new_text.startswith("domain Shop {\n  type Row = { id: string }\n\n  state {\n")


def scopes(line: str) -> dict[str, str]:
    """Return the scope of each token of a line that has one, as the engine of an editor gives it."""
    parser = LanguageParser(json.loads(GRAMMAR.read_text()))
    element = parser.parse_string(line + "\n")
    assert element is not None
    found: dict[str, str] = {}
    for _, content, tokens in element.flatten():
        if tokens and tokens[-1] != "source.mel":
            found[content] = tokens[-1]
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("domain Shop {", {"domain": "keyword.other.declaration.mel", "Shop": "entity.name.type.mel"}),
        ("  // stock", {"// stock": "comment.line.double-slash.mel"}),
        (
            "  state { stock: number = 3 }",
            {"state": "keyword.other.declaration.mel", "stock": "variable.other.property.mel",
             "number": "support.type.mel", "3": "constant.numeric.mel"},
        ),
        (
            "  action shop.sell(n: number) available when !isEmpty {",
            {"action": "keyword.other.declaration.mel", "shop.sell": "entity.name.function.mel",
             "available": "keyword.control.clause.mel", "when": "keyword.control.clause.mel"},
        ),
        (
            '    when trim(name) == "" { fail "NO" with `only ${stock}` }',
            {"when": "keyword.control.guard.mel", "trim": "support.function.mel", "fail": "keyword.control.end.mel",
             "${": "punctuation.section.embedded.begin.mel"},
        ),
        (
            "    onceIntent { patch stock = $input.n }",
            {"onceIntent": "keyword.control.guard.mel", "patch": "keyword.other.statement.mel",
             "$input.n": "variable.language.mel"},
        ),
        (
            "    effect mail.send({})",
            {"effect": "keyword.other.statement.mel", "mail.send": "entity.name.function.effect.mel"},
        ),
        ('@schema({ id: "urn:x" })', {"schema": "storage.type.annotation.mel"}),
    ],
)  # fmt: skip
def test_the_textmate_grammar_colours_the_words_of_a_line(line: str, expected: dict[str, str]) -> None:
    assert expected.items() <= scopes(line).items()


def test_the_textmate_grammar_has_every_function() -> None:
    pattern = json.loads(GRAMMAR.read_text())["repository"]["call"]["match"]
    names = pattern.removeprefix(r"\b(").partition(")")[0].split("|")
    assert names == sorted({*KINDS, *SUGAR})


def test_the_language_server_ends_cleanly_after_shutdown_and_exit():
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {"id": 2, "method": "shutdown"},
        {"method": "exit"},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    sent = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
    command = [sys.executable, "-m", "worldprotocol", "domain", "lsp"]
    ended = subprocess.run(command, check=False, input=sent, capture_output=True, env=environment() | ENV)
    assert (ended.returncode, ended.stderr) == (0, b"")
