"""A feed to a file in a process of its own, which waits at a place where a test kills it.

``file_child.py FOLDER PLACE TIMES``: at the message number TIMES it prints ``waiting`` and waits:

- ``written``: its lines are in the file, and nothing is stored;
- ``torn``: the last of them is cut.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from unittest import mock

from world.clock import SystemClock
from worldprotocol.api.config import read_config
from worldprotocol.export.feeds import running
from worldprotocol.export.feeds.messages import FeedMessage
from worldprotocol.export.feeds.sinks import FileSink
from worldprotocol.export.feeds.state import DeliveryFailure, FeedProgress

FOLDER, PLACE, TIMES = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


class StoppingSink(FileSink):
    """Waits after one of its messages."""

    count = 0

    def send(self, message: FeedMessage, message_id: str, progress: FeedProgress) -> int | DeliveryFailure:
        size = super().send(message, message_id, progress)
        assert isinstance(size, int)
        self.count += 1
        if self.count == TIMES:
            if PLACE == "torn":
                os.truncate(FOLDER / "events.jsonl", size - 10)
            print("waiting", flush=True)
            signal.pause()
        return size


[feed] = running.configured_feeds(read_config(FOLDER / "world.toml"), str(FOLDER / "world.db"))
with mock.patch.object(running, "FileSink", StoppingSink):
    running.FeedRun(feed, SystemClock()).run()
