"""Execution of a command in a server: the very command, on the server's realm, with the streams of the request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.config import CONFIG_NAME
from worldprotocol.cli.remote.input_files import RequestFiles
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.cli.support.output import Streams
from worldprotocol.server.commands.output import Following, RequestStream

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.api.bootstrap import EventLog, LoggedEvent
    from worldprotocol.api.config import Config
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.support.output import Progress
    from worldprotocol.server.commands.output import CommandRequest

__all__ = ["run_command"]

_NO_TERMINAL: Final[Mapping[str, str]] = {"TERM": "dumb"}


def run_command(request: CommandRequest, config: Config, address: str) -> int:
    """Run a command of a request in this thread and return its exit code.

    Args:
        request: its words, realm and streams.
        config: the configuration of the realm.
        address: address of its log.

    Raises:
        CommandStoppedError: the caller is gone.
    """
    from worldprotocol.cli.program import run_in

    return run_in(RemoteContext(request, config, address), request.words)


class RemoteContext(CommandContext):
    """What a command of a request is handed: the realm and the configuration of the server, and no file of it.

    Args:
        request: the request.
        config: the configuration of the realm.
        address: address of its log.
    """

    def __init__(self, request: CommandRequest, config: Config, address: str) -> None:
        """Name the server's log and configuration, in place of what the environment of the server names."""
        super().__init__(json="--json" in request.words)
        self.log = address
        self.config = str(config.folder / CONFIG_NAME)
        self.trust = True  # the server has loaded this code
        self._request = request
        self._settings = config
        terminal, output = request.terminal, request.output
        environ = _NO_TERMINAL if terminal is None else terminal
        self._streams = Streams(
            cast(TextIO, RequestStream(output, "out", is_terminal=terminal is not None)),
            cast(TextIO, RequestStream(output, "err", is_terminal=False)),
            environ,
        )
        self._files = RequestFiles(request.files, request.stdin)
        self._is_made = True

    def settings(self) -> Config:
        """Return the configuration of the realm."""
        return self._settings

    def open(self, *, execute: bool = True) -> AbstractContextManager[Realm]:
        """Return the realm, which acts as the caller; leaving it does not close it."""
        return self._within(self._request.acting)

    def look(self, *, tells_closed: bool = True) -> AbstractContextManager[Realm]:
        """Return the realm for reading; leaving it does not close it."""
        return self._within(self._request.reader)

    @contextmanager
    def _within(self, realm: Realm) -> Iterator[Realm]:
        """Give a realm; an ambiguous name lists no candidates to a caller that may not read everything.

        Raises:
            RefusedError: ``AMBIGUOUS`` without candidates.
        """
        try:
            yield realm
        except RefusedError as refused:
            if self._request.may_list or refused.code != "AMBIGUOUS":
                raise
            words = (
                "This could be several things; write more of it. They are not listed to a caller that may not read all."
            )
            raise RefusedError(ErrorCode.AMBIGUOUS, words) from None

    @property
    def streams(self) -> Streams:
        """The streams of the request."""
        return self._streams

    @property
    def inputs(self) -> RequestFiles:
        """The contents that the request has."""
        return self._files

    def progress(self, description: str) -> AbstractContextManager[Progress]:
        """Return what sends progress to the caller, and stops the command once the caller is gone."""
        return nullcontext(lambda done, total: self._request.output.progress(description, done, total))

    def may_see(self, proposal: Proposal) -> bool:
        """Return whether the caller may read a proposal."""
        return self._request.may_see(proposal)

    def follow(self, log: EventLog, topics: Sequence[str] | None, take: Callable[[LoggedEvent], bool]) -> int:
        """Hand over the events up to the end of the log; the server continues with later ones."""
        size = log.head().size
        for logged in log.read(upto=size, topics=topics):
            if take(logged):
                return 0
        self._request.following = Following(size, topics, take)
        return 0

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep what the server determines, whatever options and the environment of the server say."""
        if name in ("json", "quiet") or "_is_made" not in self.__dict__:
            super().__setattr__(name, value)
