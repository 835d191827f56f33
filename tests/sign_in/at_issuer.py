"""Starts an issuer and a server that signs browsers in there, and walks through the code flow as a browser does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.pages.pages_of import PAGES_PATH, parsed
from tests.server.served import NO_TLS, Served, founded, serving
from tests.sign_in.issuer import CLIENT, SECRET

PROGRAM = Path(__file__).with_name("issuer.py")
SIGN_IN = f"{PAGES_PATH}/sign-in/corp"


@dataclass
class RunningIssuer:
    """A running issuer.

    Args:
        url: its address, which is its name.
    """

    url: str

    def behave(self, **behaviour: Any) -> None:
        """Let it behave so, and as a good issuer in everything else."""
        httpx.post(f"{self.url}/behaviour", json=behaviour, trust_env=False, verify=NO_TLS).raise_for_status()

    def seen(self) -> list[dict[str, Any]]:
        """Return what it was asked since the last call."""
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/seen", trust_env=False, verify=NO_TLS).json()
        return found

    def signed(self, claims: Mapping[str, Any]) -> str:
        """Return a JWT with claims."""
        return httpx.post(f"{self.url}/sign", json=dict(claims), trust_env=False, verify=NO_TLS).text


@contextmanager
def issuing(host: str = "localhost") -> Iterator[RunningIssuer]:
    """Run an issuer.

    Args:
        host: its name; by another name than the server's it is another site.
    """
    process = subprocess.Popen([sys.executable, str(PROGRAM), host], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield RunningIssuer(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def section(issuer: str, *more: str, name: str = "corp") -> str:
    """Return the section of an issuer in ``world.toml``."""
    lines = [
        "[[server.oidc]]",
        f"issuer = '{issuer}'",
        f"name = '{name}'",
        f"client_id = '{CLIENT}'",
        "client_secret = '${secret:OIDC_CLIENT}'",
        "actor_claim = 'wp_actor'",
        *more,
    ]
    return "\n".join(lines)


SECRETS = "\n[secrets]\nprefix = 'KIOSK_SECRET_'\n"


@contextmanager
def serving_with(folder: Path, *sections: str, server: str = "burst = 1000", arguments: Any = ()) -> Iterator[Served]:
    """Run a server with issuers."""
    place = founded(folder, server="\n".join([server, *sections, SECRETS]))
    with serving(place, *arguments, KIOSK_SECRET_OIDC_CLIENT=SECRET) as running:
        yield running


def form_at(answer: httpx.Response) -> dict[str, str]:
    """Return the fields of the issuer's form."""
    assert answer.status_code == 200, answer.text
    return {one.get("name", ""): one.get("value", "") for one in parsed_loosely(answer.text)}


def parsed_loosely(page: str) -> Any:
    import html5lib

    root = html5lib.parse(page, namespaceHTMLElements=False)
    return [one for one in root.iter("input") if one.get("type") == "hidden"]


def begun(browser: httpx.Client, path: str = SIGN_IN) -> str:
    """Begin to sign in; return the address at the issuer."""
    answer = browser.get(path)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def answered(browser: httpx.Client, url: str, user: str) -> str:
    """Sign in at the issuer as a user; return the address to which it sends the browser back."""
    fields = form_at(browser.get(url))
    at = urlsplit(url)
    answer = browser.post(f"{at.scheme}://{at.netloc}/login", data={**fields, "user": user})
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


def signed_in(browser: httpx.Client, user: str, path: str = SIGN_IN) -> httpx.Response:
    """Walk through the whole flow; return the last answer of the server."""
    return browser.get(answered(browser, begun(browser, path), user))


def text_of(page: str) -> str:
    """Return the text of a page's main part."""
    found = next(parsed(page).iter("main"))
    return " ".join("".join(found.itertext()).split())


def heading(page: str) -> str:
    """Return the heading of a page."""
    found = next(parsed(page).iter("h1"))
    return "".join(found.itertext()).strip()
