"""Certificates are checked against the name that was asked for, and encryption is not left."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import OutboundWeb
from tests.unit.web.site_fakes import PUBLIC, Detour, Names, answer, redirect, serving


@dataclass(slots=True)
class Certified:
    """A server's side of TLS, with a certificate nobody else vouches for."""

    context: ssl.SSLContext
    file: Path
    names: list[str | None] = field(default_factory=list)
    """Server names that were asked for."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for site.example and its key, in one file; made by the program openssl."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    key = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    name = ["-subj", "/CN=site.example", "-addext", "subjectAltName=DNS:site.example", "-days", "2"]
    subprocess.run(
        [*key, *name, "-keyout", file, "-out", file.with_suffix(".crt")], check=True, capture_output=True
    )
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


@pytest.fixture
def certified(certificate: Path) -> Certified:
    """The context a server needs, which writes down the names it is asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    found = Certified(context, certificate.with_suffix(".crt"))
    context.sni_callback = lambda _, name, __: found.names.append(name)
    return found


def web_of(detour: Detour, ca_file: Path | None) -> OutboundWeb:
    """Return a web in which two names lead to one server here."""
    names = Names(site_example=[[PUBLIC]], other_example=[[PUBLIC]])
    return OutboundWeb(WebSettings(ca_file=ca_file), resolve=names, connector=detour)


async def test_certificate_nobody_vouches_for_is_refused(certified: Certified) -> None:
    """Nothing is sent to such a server."""
    async with serving(answer(b"hello"), tls=certified.context) as site:
        with pytest.raises(ExecutionError, match="certificate verify failed"):
            await web_of(Detour(site.port), None).get("https://site.example/")
    assert site.requests == []


async def test_name_of_the_address_is_what_the_certificate_is_checked_for(certified: Certified) -> None:
    """The connection goes by address; certificate, server name and Host header go by name."""
    async with serving(answer(b"hello"), tls=certified.context) as site:
        detour = Detour(site.port)
        web = web_of(detour, certified.file)
        page = await web.get("https://site.example/")
        with pytest.raises(ExecutionError, match="certificate verify failed"):
            await web.get("https://other.example/")
    assert page.body == b"hello"
    assert detour.asked == [(PUBLIC, 443)] * 2
    assert certified.names == ["site.example", "other.example"]
    assert [site.headers(at)["host"] for at in range(len(site.requests))] == ["site.example"]


async def test_encryption_is_not_left(certified: Certified) -> None:
    """REL-L45: https leads on to https, and never to http."""
    async with serving(redirect("http://site.example/plain"), tls=certified.context) as site:
        detour = Detour(site.port)
        with pytest.raises(PermissionDenied, match="not encrypted"):
            await web_of(detour, certified.file).get("https://site.example/")
    assert len(detour.asked) == 1


async def test_server_without_tls_is_told() -> None:
    """What is no TLS at all is no page."""
    async with serving(answer(b"x")) as site:
        web = OutboundWeb(
            WebSettings(connect_timeout_s=0.3),
            resolve=Names(site_example=[[PUBLIC]]),
            connector=Detour(site.port),
        )
        with pytest.raises(ExecutionError, match="can't be fetched"):
            await web.get("https://site.example/")
