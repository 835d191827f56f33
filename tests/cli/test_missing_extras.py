"""What needs a package of an extra that is not installed says so in one line, and how to install it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.realm import environment
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "cedar": ["cedarpy"],
    "cluster": ["distributed"],
    "cose": ["cbor2"],
    "claude-agent": ["claude_agent_sdk"],
    "langchain": ["langchain", "langgraph"],
    "openai-agents": ["agents"],
    "pydantic-ai": ["pydantic_ai"],
    "keyring": ["keyring"],
    "lsp": ["pygls"],
    "mcp": ["mcp", "mcp_types"],
    "postgres": ["psycopg"],
    "report": ["jinja2", "markupsafe"],
    "server": ["fastapi", "joserfc", "prometheus_client", "sse_starlette", "uvicorn"],
    "sql": ["duckdb", "pyarrow"],
    "watch": ["watchfiles"],
    "testing": ["coverage", "hypothesis", "pytest", "_pytest"],
}
CEDAR = '@id("a") permit(principal, action, resource);\n'
RULES = """
from authority import Approve, Policy, rule

@rule
def a(case):
    return Approve("a")

house = Policy("house", [a])
"""
CASES = """
[[cases]]
name = "one"
actor = "bot"
base = { data = { balance = 1 } }
intent = { type = "deposit", input = { amount = 5 } }
expected = { decision = "approve" }
"""

LINT_FOUND, DOCTOR_FOUND, NOT_MEASURED = 1, 1, 0

COMMANDS: list[tuple[str, list[str], int]] = [
    ("cedar", ["policy", "lint", "house.cedar"], LINT_FOUND),
    ("cedar", ["init", "other", "--domain", "ledger.yaml", "--policy", "house.cedar", "--log", "new.db"], 2),
    ("cedar", ["policy", "test", "house.cedar"], 2),
    ("cedar", ["policy", "ask", "--policy", "house.cedar", "--actor", "ann", "--intent", "intent.json"], 2),
    ("cluster", ["--log", "w.db", "recheck", "--executor", "dask://127.0.0.1:1"], 2),
    ("cluster", ["--log", "w.db", "policy", "backtest", "--with", "rules.py:house", "--executor", "dask://h:1"], 2),
    ("cose", ["--log", "w.db", "prove", "1", "--format", "cose"], 2),
    ("cose", ["verify", "receipt.cose", "--against", f"9:{'0' * 64}"], 2),
    ("postgres", ["--log", "postgresql://localhost/db", "log"], 2),
    ("postgres", ["--log", "postgresql://localhost/db", "init", "more", "--domain", "ledger.yaml"], 2),
    ("postgres", ["--log", "postgresql://localhost/db", "verify"], 2),
    ("postgres", ["--log", "postgresql://localhost/db", "doctor"], DOCTOR_FOUND),
    ("report", ["report", "-o", "page.html"], 2),
    ("server", ["serve", "--port", "0"], 2),
    ("sql", ["--log", "w.db", "sql", "SELECT 1"], 2),
    ("sql", ["--log", "w.db", "export", "--format", "parquet", "tables"], 2),
    ("sql", ["--log", "parquet:///tables", "verify"], 2),
    ("watch", ["dev", "rules.py"], 2),
    ("lsp", ["domain", "lsp"], 2),
    ("mcp", ["mcp", "--actor", "ann"], 2),
    ("testing", ["policy", "test", "rules.py:house", "--coverage"], NOT_MEASURED),
]

CALLS: list[tuple[str, str]] = [
    ("cedar", "from authority import policy_from_file; policy_from_file('house.cedar')"),
    ("cedar", "from worldprotocol import Realm; Realm.create('c.db', domain='ledger.yaml', policies=['house.cedar'])"),
    ("postgres", "from worldprotocol import Realm; Realm.open_read_only('postgresql://localhost/db')"),
    ("postgres", "from worldprotocol import Realm; Realm.create('postgresql://localhost/db', domain='ledger.yaml')"),
    ("postgres", "from world.log import open_log; open_log('postgresql://localhost/db')"),
    ("keyring", "from host.secrets import KeyringSecrets; KeyringSecrets('shop').read('TOKEN')"),
    ("report", "from worldprotocol.report.page import _environment; _environment()"),
    ("claude-agent", "import worldprotocol.agents.frameworks.claude_agent"),
    ("langchain", "import worldprotocol.agents.frameworks.langchain"),
    ("openai-agents", "import worldprotocol.agents.frameworks.openai_agents"),
    ("pydantic-ai", "import worldprotocol.agents.frameworks.pydantic_ai"),
    ("testing", "import worldprotocol.testing.strategies"),
    ("testing", "import worldprotocol.testing.scenarios"),
    ("testing", "import worldprotocol.testing.recordings"),
]

CHILD = """
import json, sys
extra, packages, commands, calls = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(packages))
from world.errors import RefusedError
from worldprotocol.cli.program import run
for command, expected in commands:
    print("> ", *command, flush=True)
    code = run(command)
    print("as expected" if code == expected else f"exit code {code}", flush=True)
for call in calls:
    print("> ", call, flush=True)
    try:
        exec(call)
    except RefusedError as refused:
        print(refused.message)
        print("as expected" if refused.details["extra"] == extra else refused.details, flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a realm, a policy of each kind, and cases."""
    made = tmp_path_factory.mktemp("extras")
    texts = {
        "house.cedar": CEDAR,
        "ledger.yaml": (ROOT / "tests/golden/ledger.yaml").read_text(),
        "intent.json": '{"type": "deposit", "input": {"amount": 1}}',
        "receipt.cose": "\u0480",  # begins with the byte of COSE_Sign1
        "rules.py": RULES,
        "rules.cases.toml": CASES,
    }
    for name, text in texts.items():
        (made / name).write_text(text)
    command = [sys.executable, "-m", "worldprotocol", "init", "--domain", "ledger.yaml", "--log", "w.db"]
    subprocess.run(command, cwd=made, env=environment(), check=True, capture_output=True, timeout=PATIENCE_S)
    return made


@pytest.mark.parametrize("extra", PACKAGES)
@pytest.mark.slow
def test_a_missing_extra_is_one_line_that_says_what_to_install(folder: Path, extra: str) -> None:
    commands = [(command, code) for needs, command, code in COMMANDS if needs == extra]
    calls = [call for needs, call in CALLS if needs == extra]
    given = json.dumps([extra, PACKAGES[extra], commands, calls])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, given],
        cwd=folder,
        env={**environment(), "PYTHONPATH": f"{ROOT}:{folder}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    told = ("\n" + done.stdout).split("\n>  ")[1:]
    assert len(told) == len(commands) + len(calls)
    for one in told:
        *_, expected = one.strip().splitlines()
        assert expected == "as expected", one
        named = [line for line in one.splitlines() if " need the package " in line]
        assert named, one
        assert all(f"pip install 'world-protocol[{extra}]'" in line for line in named), one
        assert len(named) == 1 or "doctor" in one, one  # which looks at several parts of a realm


def test_every_extra_of_the_distribution_is_tried() -> None:
    """Traces are no refusal: without their extra there is a warning (tests/telemetry)."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() - {"dev", "telemetry"} == PACKAGES.keys() == {extra for extra, *_ in (*COMMANDS, *CALLS)}
