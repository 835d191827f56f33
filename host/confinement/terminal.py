"""Assignment of the terminal to a command, so that it receives Ctrl-C, Ctrl-Z and keyboard input."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

__all__ = ["Terminal"]


class Terminal:
    """The terminal of a command, when this process has it in the foreground.

    Args:
        descriptor: of the terminal; the caller closes it.
    """

    def __init__(self, descriptor: int) -> None:
        """Store the descriptor."""
        self._descriptor = descriptor

    @classmethod
    def of(cls, descriptor: int) -> Terminal | None:
        """Return the terminal of a descriptor, None where it is none or another job has it."""
        try:
            if not os.isatty(descriptor) or os.tcgetpgrp(descriptor) != os.getpgrp():
                return None
        except OSError:
            return None
        return cls(descriptor)

    def lend(self, group: int) -> None:
        """Put another process group in the foreground."""
        with _without_stopping(), contextlib.suppress(OSError):
            os.tcsetpgrp(self._descriptor, group)

    def take_back(self) -> None:
        """Put this process's group in the foreground again."""
        self.lend(os.getpgrp())

    def stop_with(self, group: int) -> None:
        """Stop like the command, so that the shell sees a stopped job; continue together with it."""
        self.take_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._descriptor) == os.getpgrp():
                self.lend(group)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)


@contextlib.contextmanager
def _without_stopping() -> Iterator[None]:
    """Block SIGTTOU: a background process that changes the foreground group would be stopped."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
