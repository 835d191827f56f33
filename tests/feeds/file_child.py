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

from world.clock import SystemClock
from worldprotocol.api.config import read_config
from worldprotocol.export.feeds.running import FeedRun, configured_feeds
from worldprotocol.export.feeds.sinks import FileSink

FOLDER, PLACE, TIMES = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
send = FileSink.send
count = 0


def stopping(self, message, message_id, progress):
    global count
    size = send(self, message, message_id, progress)
    count += 1
    if count == TIMES:
        if PLACE == "torn":
            os.truncate(FOLDER / "events.jsonl", size - 10)
        print("waiting", flush=True)
        signal.pause()
    return size


FileSink.send = stopping
[feed] = configured_feeds(read_config(FOLDER / "world.toml"), str(FOLDER / "world.db"))
FeedRun(feed, SystemClock()).run()
