"""Which tests carry which requirement id: ``python -m tests.mutation.marked FILE`` writes it as JSON."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.plugins.conformance import function_of, requirements_of


class _Marks:
    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        for id_ in requirements_of(item):
            self.tests[str(id_)].add(function_of(item.nodeid))


def main() -> int:
    """Collect all tests and write the ids with the tests that carry them."""
    marks = _Marks()
    options = ["--collect-only", "-qqq", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*options, "tests"], plugins=[marks])
    found = {id_: sorted(tests) for id_, tests in sorted(marks.tests.items())}
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
