"""Printing: JSON for programs, tables for people on a terminal, plain text where the output is piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import orjson

from worldprotocol.json_text import as_text
from worldprotocol.terminal_text import visible

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is in all."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a command prints: the streams of this process, or those of a request to a server.

    Args:
        out: for results; its ``buffer`` takes bytes.
        err: for remarks and errors.
        environ: environment variables that describe the terminal; None are those of this process.
    """

    out: TextIO
    err: TextIO
    environ: Mapping[str, str] | None = None

    @classmethod
    def of_process(cls) -> Streams:
        """Return the standard streams of this process, as they are now."""
        return cls(sys.stdout, sys.stderr)


class Printer:
    """Prints results on stdout.

    Args:
        as_json: print JSON in place of text.
        quiet: leave remarks out.
        streams: where it prints; None is stdout and stderr of this process.
    """

    def __init__(self, *, as_json: bool, quiet: bool, streams: Streams | None = None) -> None:
        """Print in one of the two ways."""
        self.as_json = as_json
        self.quiet = quiet
        self._streams = Streams.of_process() if streams is None else streams
        self.terminal = self._streams.out.isatty()

    def document(self, value: Any) -> None:
        """Print one JSON document: on one line when piped, indented on a terminal.

        Only where JSON was asked for and is piped, it is printed as it is. Everywhere else a person may read it: what
        steers a terminal is written as an escape of JSON, and the document says the same.
        """
        self._print(self._safe(as_text(value, orjson.OPT_INDENT_2 if self.terminal else 0)))

    def line(self, value: Any) -> None:
        """Print one line of a stream of JSON, at once, as ``document`` prints it."""
        self._print(self._safe(as_text(value)), at_once=True)

    def _safe(self, text: str) -> str:
        return text if self.as_json and not self.terminal else visible(text, "\n")

    def text(self, words: str = "", *, laid_out: bool = False) -> None:
        """Print a line for people; what others wrote in it begins no line of its own and steers no terminal.

        Args:
            words: what to print.
            laid_out: its line breaks are part of the layout; it contains no foreign text that could have some.
        """
        self._print(visible(words, "\t\n" if laid_out else "\t"))

    def row(self, cells: Iterable[str], *, at_once: bool = False) -> None:
        """Print a line of columns, separated by tabs; ``at_once`` does not wait for more."""
        self._print("\t".join(map(visible, cells)), at_once=at_once)

    def _print(self, line: str, *, at_once: bool = False) -> None:
        print(line, file=self._streams.out, flush=at_once)

    def remark(self, words: str) -> None:
        """Say something on stderr that is no result; quiet leaves it out."""
        if not self.quiet:
            self.warn(words)

    def warn(self, words: str) -> None:
        """Say on stderr what went wrong, however quiet."""
        print(visible(words, "\t"), file=self._streams.err, flush=True)

    def tell(self, value: Any, *lines: str) -> None:
        """Print a value: as JSON with --json, otherwise in words."""
        if self.as_json:
            self.document(value)
            return
        for line in lines:
            self.text(line)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing") -> None:
        """Print a table: drawn on a terminal, else columns separated by tabs under one line of heads."""
        cells = [[shown(cell) for cell in row] for row in rows]
        if not cells:
            self.remark(empty)
        elif self.terminal:
            self.rich(_drawn(heads, cells))
        else:
            for row in (heads, *cells):
                self.row(row)

    def rich(self, thing: Any) -> None:
        """Print something that rich draws, such as a tree; use it on a terminal only."""
        from rich.console import Console

        stream, environ = self._streams.out, self._streams.environ
        Console(file=stream, highlight=False, soft_wrap=True, _environ=environ).print(thing)


def shown(value: Any) -> str:
    """Return a cell as text in which nothing begins a line or a column; None is empty."""
    return "" if value is None else visible(str(value))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 event`` and ``2 events``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _drawn(heads: Sequence[str], rows: list[list[str]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: what actors wrote is no markup
    return table


@contextmanager
def progress(description: str, *, shown: bool = True) -> Iterator[Progress]:
    """Show a progress bar on stderr once something takes longer than a moment, on a terminal only.

    Args:
        description: what is going on.
        shown: False shows nothing anyhow.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
