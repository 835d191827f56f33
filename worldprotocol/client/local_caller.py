"""Operations on a realm that is open in this process; a caller is named and not verified, and may do everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from worldprotocol.operations import AnswerForm, RequestForm
from worldprotocol.operations.calling import OperationCall, new_digests, perform
from worldprotocol.operations.declaring import Declared

if TYPE_CHECKING:
    from collections.abc import Callable

    from world.read_models.leases import Shown
    from worldprotocol.api.realm import Realm

__all__ = ["LocalCaller"]

A = TypeVar("A", bound=AnswerForm)


class LocalCaller:
    """Operations on an open realm.

    Args:
        realm: the realm.
        actor: the actor that acts, and whose keys of requests they are; None for reading.
        resource_digests: returns what shows a resource by its digest; None makes digests that no other answer has.
    """

    name = "local"

    def __init__(
        self, realm: Realm, actor: str | None = None, *, resource_digests: Callable[[], Shown] | None = None
    ) -> None:
        from worldprotocol.api.lookup.past_views import PastViews
        from worldprotocol.operations.visibility import Redactions

        self.realm = realm
        self.actor = actor
        self.redactions = Redactions(realm.log, None)
        self.past = PastViews(realm)
        self.resource_digests = new_digests if resource_digests is None else resource_digests

    def call(self, operation: Declared[Any, A], request: RequestForm, key: str | None = None) -> A:
        """Return the answer to a request; without a key, an equal one acts again.

        Raises:
            RefusedError: what the operation refuses; ``INVALID_VALUE``, ``IDEMPOTENCY_CONFLICT`` as for ``perform``.
        """
        from world.clock import SystemClock
        from world.events.verification import UNAUTHENTICATED, Verification
        from worldprotocol.operations.visibility import Visibility

        verified = (
            UNAUTHENTICATED if self.actor is None else Verification(method="unauthenticated", actor_id=self.actor)
        )
        view = self.realm.realm()
        call = OperationCall(
            hosted=self,
            verified=verified,
            view=view,
            visibility=Visibility.of_everything(view, verified, self.redactions),
            clock=SystemClock(),
        )
        return perform(operation, call, request, key)
