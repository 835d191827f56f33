"""The files for a deployment: the unit of systemd, the container file, and what the page of production says of them."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from worldprotocol.api.config import ServerConfig

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs" / "deploy"
UNIT = DEPLOY / "world-protocol.service"
CONTAINER = DEPLOY / "Containerfile"


def unit() -> configparser.ConfigParser:
    """Return the unit, parsed."""
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    parsed.read_string(UNIT.read_text(encoding="utf-8"))
    return parsed


def test_systemd_accepts_the_unit_where_it_is_installed(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    command = "/opt/world-protocol/bin/worldctl"
    assert text.count(command) == 1
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(command, sys.executable), encoding="utf-8")
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run(
            [analyze, "verify", str(copy)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert (done.returncode, done.stderr) == (0, "")
        rated = subprocess.run(
            [analyze, "security", "--offline=true", "--threshold=20", "--no-pager", str(copy)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert rated.returncode == 0, rated.stdout  # an exposure of 2.0 of 10 at most


def test_the_unit_is_hardened_and_waits_for_the_drain() -> None:
    service = unit()["Service"]
    assert service["User"] == "world-protocol"
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) > ServerConfig().drain_timeout_s + ServerConfig().request_timeout_s
    on = ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables", "ProtectControlGroups")
    assert {service[name] for name in on} == {"true"}
    assert (service["ProtectSystem"], service["CapabilityBoundingSet"], service["UMask"]) == ("strict", "", "0077")
    assert "worldctl --config /etc/world-protocol/world.toml serve" in service["ExecStart"]


def test_the_container_has_no_root_and_what_it_copies_exists(tmp_path: Path) -> None:
    text = CONTAINER.read_text(encoding="utf-8")
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if line.startswith("USER ")] == ["USER 8437"]
    assert lines.index("USER 8437") < next(at for at, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
    for line in lines:
        if line.startswith("FROM "):
            assert re.search(r":\d", line), line  # a version, and not the newest
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {line.split()[1] for line in lines if line.startswith("COPY ")}
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= packages
    (extras,) = re.findall(r"/source\[([a-z,]+)\]", text)
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
    assert f"EXPOSE {ServerConfig().port}" in lines
    builder = next((one for one in ("podman", "buildah", "docker") if _builds(one)), None)
    if builder is not None:
        built = subprocess.run(
            [builder, "build", "--file", str(CONTAINER), "--iidfile", str(tmp_path / "id"), str(ROOT)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stderr


def _builds(name: str) -> bool:
    """Return whether a builder of containers is installed, and its service runs."""
    command = shutil.which(name)
    if command is None:
        return False
    return subprocess.run([command, "info"], capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0


def test_the_page_leads_to_every_file_and_its_example_is_a_configuration() -> None:
    page = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    for file in DEPLOY.iterdir():
        assert f"(deploy/{file.name})" in page, file.name
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    server = ServerConfig.model_validate(tomllib.loads(example)["server"])
    assert server.trusted_proxies == ["127.0.0.1"]
