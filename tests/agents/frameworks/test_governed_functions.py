"""``@realm.governed``: calls of Python functions are intents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from examples.frameworks.desk import desk_realm
from tests.agents.frameworks.proposals import (
    LARGE,
    NARROWS,
    PAGES,
    SMALL,
    TOO_LARGE,
    approve,
    reject,
    result_of,
    states,
)
from world.errors import RefusedError, WaitTimeoutError
from worldprotocol.agents.frameworks.gate import ToolGate
from worldprotocol.agents.frameworks.outcomes import Begun, Permit, Refusal
from worldprotocol.api.asynchronous.realm import AsyncRealm
from worldprotocol.api.realm import Realm


def refunds(realm: Realm, made: list[str], **how: object):
    @realm.governed(actor="bot", action="refund.issue", **how)  # type: ignore[call-overload]
    def refund(order: str, amount: int) -> str:
        """Pay money back."""
        made.append(order)
        return f"paid {amount} for {order}"

    return refund


def test_an_approved_call_is_made_and_its_result_is_recorded(realm: Realm):
    made: list[str] = []
    assert refunds(realm, made)("o-1", amount=30) == "paid 30 for o-1"
    [proposal] = realm.proposals()
    assert (made, proposal.status) == (["o-1"], "completed")
    assert proposal.intent.body.input == SMALL
    assert result_of(proposal) == {"value": "paid 30 for o-1"}


def test_a_rejected_call_is_not_made_and_the_reason_is_in_the_error(realm: Realm):
    made: list[str] = []
    with pytest.raises(RefusedError, match="agents make no refunds above 1000") as refused:
        refunds(realm, made)(**TOO_LARGE)
    [proposal] = realm.proposals()
    assert (made, proposal.status, refused.value.code) == ([], "rejected", "CALL_REFUSED")
    assert refused.value.details["why"] == "REJECTED"
    assert refused.value.details["proposal_id"] == proposal.proposal_id


def test_a_call_waits_for_the_person_who_is_asked(realm: Realm):
    made: list[str] = []
    refund, results = refunds(realm, made), []
    caller = threading.Thread(target=lambda: results.append(refund(**LARGE)))
    caller.start()
    while not realm.inbox():
        caller.join(0.01)
        assert caller.is_alive()
    assert made == []
    approve(realm)
    caller.join(30)
    assert (made, results) == (["o-2"], ["paid 300 for o-2"])


def test_a_call_whose_time_is_over_stays_open_and_the_next_one_continues_it(realm: Realm):
    made: list[str] = []
    refund = refunds(realm, made, wait_s=0)
    with pytest.raises(WaitTimeoutError, match="an answer of ann") as waiting:
        refund(**LARGE)
    with pytest.raises(WaitTimeoutError):
        refund(**LARGE)
    assert approve(realm) == waiting.value.details["proposal_id"]
    assert (refund(**LARGE), states(realm), made) == ("paid 300 for o-2", ["completed"], ["o-2"])


def test_a_call_goes_on_after_the_realm_was_opened_again(tmp_path: Path):
    made: list[str] = []
    with desk_realm(tmp_path) as realm, pytest.raises(WaitTimeoutError):
        refunds(realm, made, wait_s=0, key=lambda order, amount: order)(**LARGE)
    with desk_realm(tmp_path) as realm:
        approve(realm)
    with desk_realm(tmp_path) as realm:
        assert refunds(realm, made, key=lambda order, amount: order)(**LARGE) == "paid 300 for o-2"
        assert (states(realm), made) == (["completed"], ["o-2"])


def test_a_person_who_rejects_is_heard(realm: Realm):
    made: list[str] = []
    refund = refunds(realm, made, wait_s=0)
    with pytest.raises(WaitTimeoutError):
        refund(**LARGE)
    reject(realm, "wrong customer")
    with pytest.raises(WaitTimeoutError):  # a new call is a new question
        refund(**LARGE)
    assert (states(realm), made) == (["rejected", "evaluating"], [])


def test_a_narrowed_call_is_made_with_what_was_approved(realm: Realm):
    published: list[Sequence[str]] = []

    @realm.governed(actor="bot", action="page.publish", narrows=NARROWS)
    def publish(pages: list[str]) -> int:
        published.append(pages)
        return len(pages)

    assert publish(PAGES["pages"]) == 2
    assert published == [["home", "help"]]
    [proposal] = realm.proposals()
    assert proposal.intent.body.input == PAGES
    assert proposal.decision is not None
    assert proposal.decision.approved_scope is not None
    assert set(proposal.decision.approved_scope.allowed_paths or ()) == {"pages.home", "pages.help"}


def test_a_repeated_call_with_the_same_key_returns_what_was_recorded(realm: Realm):
    made: list[str] = []
    refund = refunds(realm, made, key=lambda order, amount: f"refund-{order}")
    assert [refund(**SMALL) for _ in range(3)] == ["paid 30 for o-1"] * 3
    assert (states(realm), made) == (["completed"], ["o-1"])
    with pytest.raises(RefusedError, match="o-1") as conflict:
        refund("o-1", 31)
    assert conflict.value.details["why"] == "IDEMPOTENCY_CONFLICT"
    assert made == ["o-1"]


def test_the_approval_of_a_call_does_not_cover_other_arguments_under_its_key(realm: Realm):
    made: list[str] = []
    refund = refunds(realm, made, wait_s=0, key=lambda order, amount: f"refund-{order}")
    with pytest.raises(WaitTimeoutError):
        refund("o-2", 300)
    with pytest.raises(RefusedError, match="another request"):
        refund("o-2", 999)
    approve(realm)
    with pytest.raises(RefusedError, match="another request") as conflict:
        refund("o-2", 999)
    assert conflict.value.details["why"] == "IDEMPOTENCY_CONFLICT"
    assert (refund("o-2", 300), made, states(realm)) == ("paid 300 for o-2", ["o-2"], ["completed"])


def test_calls_without_a_key_are_calls_of_their_own(realm: Realm):
    made: list[str] = []
    refund = refunds(realm, made)
    refund(**SMALL)
    refund(**SMALL)
    assert (states(realm), made) == (["completed", "completed"], ["o-1", "o-1"])


def test_an_exception_of_the_function_is_recorded_and_raised(realm: Realm):
    @realm.governed(actor="bot", action="refund.issue")
    def refund(order: str, amount: int) -> str:
        raise ConnectionError("the bank does not answer")

    with pytest.raises(ConnectionError, match="the bank does not answer"):
        refund(**SMALL)
    [proposal] = realm.proposals()
    assert (proposal.status, result_of(proposal)) == ("failed", "TOOL_FAILED")


def test_a_function_that_was_killed_is_in_doubt_and_not_called_again(realm: Realm):
    made: list[str] = []

    class Killed(BaseException):
        pass

    @realm.governed(actor="bot", action="refund.issue", key=lambda order, amount: order)
    def refund(order: str, amount: int) -> str:
        made.append(order)
        raise Killed

    with pytest.raises(Killed):
        refund(**SMALL)
    with pytest.raises(RefusedError, match="begun before") as refused:
        refund(**SMALL)
    assert (made, refused.value.details["why"]) == (["o-1"], "MADE_ALREADY")
    assert states(realm) == ["executing"]


def test_threads_that_make_the_same_call_at_once_make_it_once(realm: Realm):
    made: list[str] = []
    refund = refunds(realm, made, key=lambda order, amount: order)
    together, refused, results = threading.Barrier(8), [], []

    def call() -> None:
        together.wait()
        try:
            results.append(refund(**SMALL))
        except RefusedError as error:  # it is being made by another thread
            refused.append(error.details["why"])

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (made, states(realm)) == (["o-1"], ["completed"])
    assert len(results) + len(refused) == 8
    assert set(refused) <= {"MADE_ALREADY"}
    assert set(results) == {"paid 30 for o-1"}


def test_coroutine_functions_run_at_the_same_time(realm: Realm):
    running = 0
    most = 0

    @realm.governed(actor="bot", action="refund.issue")
    async def refund(order: str, amount: int) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while most < 3:  # every call waits until all have begun
            await asyncio.sleep(0)
        running -= 1
        return order

    async def all_of_them() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            refunds = [tasks.create_task(refund(f"o-{number}", 10)) for number in range(3)]
        return [one.result() for one in refunds]

    assert asyncio.run(all_of_them()) == ["o-0", "o-1", "o-2"]
    assert states(realm) == ["completed"] * 3


def test_calls_of_an_asynchronous_realm_are_awaited(realm: Realm):
    async def run() -> list[str]:
        governing = AsyncRealm(realm)

        @governing.governed(actor="bot", action="refund.issue")
        def in_thread(order: str, amount: int) -> str:
            return f"{order} {threading.current_thread() is not threading.main_thread()}"

        @governing.governed(actor="bot", action="refund.issue")
        async def in_loop(order: str, amount: int) -> str:
            await asyncio.sleep(0)
            return f"{order} {threading.current_thread() is not threading.main_thread()}"

        @governing.governed(actor="bot", action="refund.issue", wait_s=0)
        def waiting(order: str, amount: int) -> str:
            return order

        with pytest.raises(WaitTimeoutError):
            await waiting(**LARGE)
        return [await in_thread("o-1", amount=30), await in_loop("o-2", 30)]

    assert asyncio.run(run()) == ["o-1 True", "o-2 False"]
    assert states(realm) == ["evaluating", "completed", "completed"]


def test_a_cancelled_task_leaves_no_call_begun(realm: Realm):
    @realm.governed(actor="bot", action="refund.issue")
    async def refund(order: str, amount: int) -> str:
        return order

    async def cancelled() -> None:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(refund(**LARGE))
            while not realm.inbox():
                await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        approve(realm)
        while states(realm) != ["failed"]:
            await asyncio.sleep(0)

    asyncio.run(cancelled())
    [proposal] = realm.proposals()
    assert result_of(proposal) == "TOOL_NOT_CALLED"


def test_a_function_without_an_action_uses_the_action_of_all_tools(realm: Realm):
    @realm.governed(actor="bot")
    def greet(name: str, times: int = 2) -> str:
        return name * times

    assert greet("hi") == "hihi"
    [proposal] = realm.proposals()
    assert proposal.intent.body.type == "tool.use"
    assert proposal.intent.body.input == {"tool": "greet", "arguments": {"name": "hi", "times": 2}}


def test_methods_are_governed_without_their_object(realm: Realm):
    class Till:
        def __init__(self, currency: str) -> None:
            self.currency = currency

        @realm.governed(actor="bot", action="refund.issue")
        def refund(self, order: str, amount: int) -> str:
            return f"{amount} {self.currency}"

    assert Till("EUR").refund(**SMALL) == "30 EUR"
    [proposal] = realm.proposals()
    assert proposal.intent.body.input == SMALL


def test_faults_of_the_program_are_not_refusals_of_the_call(realm: Realm):
    with pytest.raises(RefusedError) as unnamed:
        realm.governed(lambda: None)
    assert unnamed.value.code == "UNKNOWN_ACTOR"

    @realm.governed(actor="bot", action="refund.nothing")
    def unknown() -> None: ...

    @realm.governed(actor="bot", action="note.add")
    def noted() -> None: ...

    with pytest.raises(RefusedError) as no_action:
        unknown()
    assert no_action.value.code == "UNKNOWN_ACTION"
    with pytest.raises(RefusedError, match=r"requests no effect tool\.call"):
        noted()
    with pytest.raises(TypeError, match="missing a required argument"):
        refunds(realm, [])("o-1")


def test_arguments_that_the_action_does_not_take_are_refused(realm: Realm):
    made: list[str] = []
    with pytest.raises(RefusedError) as refused:
        refunds(realm, made)("o-1", -5)
    assert (made, refused.value.details["why"]) == ([], "INVALID_INPUT")


def test_a_decorated_function_keeps_its_name_and_its_words(realm: Realm):
    refund = refunds(realm, [])
    assert (refund.__name__, refund.__doc__) == ("refund", "Pay money back.")


def test_a_call_of_which_an_argument_is_not_approved_at_all_is_not_made(realm: Realm):
    made: list[object] = []

    @realm.governed(actor="bot", action="page.publish", narrows={**NARROWS, "first": "pages.{}"})
    def publish(pages: list[str], first: str | None = None) -> None:
        made.append((pages, first))

    publish(["home", "imprint"], "help")
    with pytest.raises(RefusedError, match="'first' none is within the approved scope") as refused:
        publish(["home"], "imprint")
    with pytest.raises(RefusedError, match="leave nothing of the proposed scope"):
        publish(["imprint"])
    assert (made, refused.value.details["why"]) == ([(["home"], "help")], "TOOL_NOT_CALLED")
    assert states(realm) == ["completed", "failed", "rejected"]


@pytest.mark.parametrize("page", ["", "home.secret", "*", "**", "home\\", "a[0]", "\u0000", "../home", "home "])
def test_no_value_widens_the_scope(realm: Realm, page: str):
    published: list[str] = []

    @realm.governed(actor="bot", action="page.publish", narrows=NARROWS)
    def publish(pages: list[str]) -> None:
        published.extend(pages)

    with pytest.raises(RefusedError) as refused:
        publish([page])
    assert (published, refused.value.code) == ([], "CALL_REFUSED")


def test_what_is_no_single_call_is_not_governed(realm: Realm):
    def numbers():
        yield 1

    with pytest.raises(RefusedError, match="generator"):
        realm.governed(actor="bot")(numbers)

    class Later:
        def __await__(self):
            yield

    governed = realm.governed(actor="bot")(cast(Any, Later))
    with pytest.raises(TypeError, match="awaitable"):
        governed()
    assert states(realm) == ["failed"]


def test_functions_share_no_keys(realm: Realm):
    @realm.governed(actor="bot", action="refund.issue", key=lambda order, amount: order)
    def refund(order: str, amount: int) -> str:
        return "refunded"

    @realm.governed(actor="bot", action="refund.issue", key=lambda order, amount: order)
    def again(order: str, amount: int) -> str:
        return "refunded again"

    assert (refund(**SMALL), again(**SMALL)) == ("refunded", "refunded again")


def test_the_state_changes_once_the_call_was_made(realm: Realm):
    @realm.governed(actor="bot", action="refund.book", writes=["refunded"])
    def book(order: str, amount: int) -> str:
        assert realm.data()["refunded"] == {}
        return "paid"

    book(**SMALL)
    assert realm.data()["refunded"] == {"o-1": 30}


def test_large_results_are_recorded_by_their_hash(realm: Realm):
    @realm.governed(actor="bot", action="refund.issue", key=lambda order, amount: order)
    def refund(order: str, amount: int) -> str:
        return "x" * 20_000

    assert len(refund(**SMALL)) == 20_000
    [proposal] = realm.proposals()
    assert set(result_of(proposal)) == {"sha256", "bytes"}
    with pytest.raises(RefusedError) as refused:  # it was made, and its result is not known any more
        refund(**SMALL)
    assert refused.value.details["why"] == "MADE_ALREADY"


def test_an_argument_that_is_named_like_a_receiver_is_judged_too(realm: Realm):
    @realm.governed(actor="bot")
    def style(cls: str, size: int) -> str:
        return f"{cls} {size}"

    assert style("large", size=3) == "large 3"
    [proposal] = realm.proposals()
    assert proposal.intent.body.input["arguments"] == {"cls": "large", "size": 3}


def test_a_call_whose_arguments_change_while_it_waits_is_not_made(realm: Realm):
    gate = ToolGate(realm, "bot", client="test", tools={"refund": "refund.issue"}, wait_s=30)
    arguments = dict(LARGE)
    found: list[Begun] = []
    caller = threading.Thread(target=lambda: found.append(gate.begin("refund", arguments, "c-1")))
    caller.start()
    while not realm.inbox():
        caller.join(0.01)
        assert caller.is_alive()
    arguments["amount"] = 900
    approve(realm)
    caller.join(30)
    [refusal] = found
    assert isinstance(refusal, Refusal)
    assert "changed the arguments" in refusal.reason
    assert states(realm) == ["failed"]


def test_sessions_and_ids_of_calls_are_not_taken_for_each_other(realm: Realm):
    gate = ToolGate(realm, "bot", client="test", tools={"refund": "refund.issue"})
    first, second = (gate.begin("refund", SMALL, call_id, session) for session, call_id in (("a:b", "c"), ("a", "b:c")))
    assert isinstance(first, Permit)
    assert isinstance(second, Permit)
    assert first.proposal_id != second.proposal_id
