"""Benchmarks run as their documentation says, and every one is documented."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import names
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]


def test_every_benchmark_is_documented() -> None:
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    section = page.partition("## Benchmarks\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` ", section, re.MULTILINE) == names()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["judging", "--cases", "50", "--members", "10"],
            [r"rule functions, bare +[\d,]+ /s", r"guard of a ruling +\S+ us", r"CEL .* ratio +\d"],
        ),
        (["catalog", "--seconds", "0.01"], [r" 50 actions .* ratio +\d", r"1000 actions .* ratio +\d"]),
        (
            ["cluster", "--proposals", "20", "--realms", "2", "--workers", "1"],
            [r"recheck +one process", r"recheck +1 worker .* ratio +\d", r"backtest +2, 1 killed .* ratio +\d"],
        ),
        (["tables", "--decisions", "20"], [r"SELECT \+ orjson", r"export .* [\d,]+ events/s +[+-]\d+ MB"]),
        (
            ["backtest", "--decisions", "20", "--jobs", "1"],
            [r"20 decisions", r"CEL .* ratio to bare", r"Python .* ratio to bare"],
        ),
        (
            ["cost", "--proposals", "10", "--rounds", "1", "--seconds", "0.2"],
            [r"sqlite\n +bytes, pure", r"postgresql\n(?:.*\n)+  http, 64 .* of the database +[\d,]+ us .* ratio +\d"],
        ),
        (
            ["hooks", "--calls", "3"],
            [
                r"PreToolUse, one connection .* to bare +\d",
                r"below 25 ms; measured +\d",
                r"Read of 9 agents, beside a command .* to alone +\d",
                r"p95 below 50 ms; measured \d",
                r"bare Python; measured \d",
            ],
        ),
        (
            ["reading", "--held", "50", "--seconds", "0.01"],
            [r"data .* with none held .* ratio +\d", r"blame .* ratio +\d"],
        ),
        (["telemetry", "--proposals", "5", "--rounds", "3"], [r"no provider .* ratio +\d", r"made .* ratio +\d"]),
        (["recheck", "--decisions", "20", "--jobs", "1"], [r"20 decisions", r"ratio to the first +\d", r"whatif +\d"]),
    ],
    ids=lambda value: value[0] if isinstance(value[0], str) and value[0].isalpha() else "",
)
@pytest.mark.slow
def test_a_benchmark_prints_ratios_of_one_run(arguments: list[str], said: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in said:
        assert re.search(line, done.stdout), done.stdout
