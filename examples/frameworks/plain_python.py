"""Functions at the service desk, without a framework: ``python -m examples.frameworks.plain_python [FOLDER]``.

A call that waits for ann ends the first run; in the second one, another process, it continues once she has decided. The
calls that were made already return their recorded results.
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.frameworks.desk import CALLS, Books, desk_realm, folder_of, show_waiting
from world.errors import RefusedError, WaitTimeoutError


def main(folder: Path) -> None:
    """Make the calls of the script."""
    books = Books(folder)
    with desk_realm(folder) as realm:

        @realm.governed(actor="bot", action="refund.issue", wait_s=0, key=lambda order, amount: f"refund {order}")
        def refund(order: str, amount: int) -> str:
            return books.refund(order, amount)

        @realm.governed(
            actor="bot",
            action="page.publish",
            narrows={"pages": "pages.{}"},
            key=lambda pages: f"publish {pages}",
        )
        def publish(pages: list[str]) -> str:
            return books.publish(pages)

        functions = {"refund": refund, "publish": publish}
        for name, given in CALLS:
            try:
                print(functions[name](**given))  # type: ignore[operator]
            except WaitTimeoutError as waiting:
                show_waiting(folder, waiting.details["proposal_id"], "ann")
            except RefusedError as refused:
                print(refused.message)


if __name__ == "__main__":
    main(folder_of(sys.argv))
