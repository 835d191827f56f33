"""Clients of operations: of an open realm, or of a server.

Source: docs/contributing.md, "An HTTP endpoint, or a command on it".
"""

from __future__ import annotations

from worldprotocol.client.callers import OperationCaller
from worldprotocol.client.local_caller import LocalCaller
from worldprotocol.client.remote_caller import RemoteCaller

__all__ = ["LocalCaller", "OperationCaller", "RemoteCaller"]
