"""States of a realm at points in the past; the recently used ones are kept, because making one folds all events."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

if TYPE_CHECKING:
    from world.state.realm_view import RealmView
    from worldprotocol.api.realm import Realm

__all__ = ["PastViews"]

MAX_KEPT: Final = 8
"""Past states that are kept."""

MAX_WAITING: Final = 4
"""Callers that fold a past state, or wait for another one that does."""


class PastViews:
    """States of one realm at points in the past.

    Args:
        realm: the realm.
    """

    def __init__(self, realm: Realm) -> None:
        """Keep no state yet."""
        self._realm = realm
        self._kept: OrderedDict[int, RealmView] = OrderedDict()
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)
        self._folding = threading.Lock()  # so that one thread folds at a time

    def view(self, position: int) -> RealmView:
        """Return the state after the event at a position.

        Raises:
            RefusedError: ``TOO_MANY_REQUESTS`` where several callers wait, so that threads are left for others.
        """
        if not self._waiting.acquire(blocking=False):
            raise RefusedError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"{MAX_WAITING} requests for the past of this realm are running; send it again later.",
            )
        try:
            with self._folding:
                found = self._kept.pop(position, None)
                view = self._realm.archive.fold_realm(position) if found is None else found
                self._kept[position] = view
                if len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
                return view
        finally:
            self._waiting.release()
