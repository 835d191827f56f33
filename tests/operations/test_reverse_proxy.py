"""Headers of reverse proxies count only where the proxy is configured; TLS with a certificate of one's own."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.server.served import PATH, founded, serving, stopped
from world.errors import RefusedError
from worldprotocol.api.config import ServerConfig, read_config

pytestmark = pytest.mark.slow

FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}


@pytest.mark.parametrize(
    ("setting", "is_secure"),
    [
        ("", False),
        ('trusted_proxies = ["192.0.2.1"]', False),
        ('trusted_proxies = ["127.0.0.1"]', True),
        ('trusted_proxies = ["127.0.0.0/8"]', True),
    ],
)
def test_the_protocol_of_a_proxy_counts_only_where_it_is_trusted(tmp_path: Path, setting: str, is_secure: bool) -> None:
    with serving(founded(tmp_path, server=setting), "--sign-in", "ann") as served, served.client() as client:
        path, _, code = served.links["ann"].partition("?code=")
        answer = client.post(path, data={"code": code}, headers=FORWARDED)
        cookie = answer.headers["set-cookie"].lower()
        assert ("; secure" in cookie) is is_secure


@pytest.mark.parametrize(("setting", "is_limited"), [("", True), ('trusted_proxies = ["127.0.0.1"]', False)])
def test_an_address_that_a_caller_states_does_not_evade_the_limit_of_failed_sign_ins(
    tmp_path: Path, setting: str, is_limited: bool
) -> None:
    limits = f"requests_per_second = 1\nburst = 5\n{setting}"
    with serving(founded(tmp_path, server=limits)) as served, served.client() as client:
        statuses = [
            client.get(
                PATH, headers={"Authorization": "Bearer no", "X-Forwarded-For": f"203.0.113.{number}"}
            ).status_code
            for number in range(20)
        ]
    assert (429 in statuses) is is_limited


def test_a_proxy_that_is_no_address_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "world.toml"
    config.write_text('[server]\ntrusted_proxies = ["proxy.example.com"]\n', encoding="utf-8")
    with pytest.raises(RefusedError, match=r"proxy\.example\.com") as caught:
        read_config(config)
    assert caught.value.code == "INVALID_CONFIG"
    assert ServerConfig().trusted_proxies == []


def certificate(folder: Path, name: str) -> None:
    """Write a certificate and its key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", "server.key", "-out", "server.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


def presented(url: str) -> str:
    """Return the certificate that a server presents, in PEM."""
    address = httpx.URL(url)
    return ssl.get_server_certificate((address.host, address.port or 443))


def test_a_renewed_certificate_is_used_after_a_restart(tmp_path: Path) -> None:
    assert shutil.which("openssl") is not None
    certificate(tmp_path, "first")
    place = founded(tmp_path, server='tls_certificate = "server.pem"\ntls_key = "server.key"')
    first = (tmp_path / "server.pem").read_text()
    with serving(place) as served:
        assert served.url.startswith("https://")
        with httpx.Client(verify=ssl.create_default_context(cadata=first), trust_env=False) as client:
            assert client.get(f"{served.url}/healthz").json() == {"status": "ok"}
        certificate(tmp_path, "second")
        second = (tmp_path / "server.pem").read_text()
        assert presented(served.url).split() == first.split()  # a running server keeps the one that it has read
        assert stopped(served) == 0
    with serving(place) as served:
        assert presented(served.url).split() == second.split()
        assert stopped(served) == 0
