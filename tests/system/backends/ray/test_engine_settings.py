"""What a private Ray is started with, and which options are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiontree.backends.ray.engine.engine_security import Listener
from sessiontree.backends.ray.engine.engine_settings import (
    SYSTEM_CONFIG,
    RayOptions,
    build_environment,
    select_for_gateway,
    select_for_servers,
    set_variables,
)
from sessiontree.contracts.errors import ConfigError
from sessiontree.models.api_key import ApiKey
from sessiontree.models.providers.provider_model import KEY_VARIABLES
from sessiontree.sandbox import RAY_SITE

MAX_S = 300.0
"""So long may a raylet be silent, at least: a suspended program, a machine out of breath."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RayOptions("ray://10.0.0.1:10001"), "Ray Client is not supported"),
        (RayOptions("somewhere"), "give host:port or 'auto'"),
        (RayOptions("local"), "leave it out for a private Ray"),
        (RayOptions("10.0.0.1:6379", num_cpus=2), "num_cpus=2 is only for a private Ray"),
        (RayOptions(num_cpus=-1), "give 0 or more"),
    ],
)
def test_options_that_never_fits_is_refused_with_what_would(options: RayOptions, words: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=words):
        options.check()


@pytest.mark.parametrize(
    "options", [RayOptions(), RayOptions("auto"), RayOptions("[::1]:6379"), RayOptions(num_cpus=0)]
)
def test_options_that_fit_pass(options: RayOptions) -> None:
    """Nothing is refused for its form alone."""
    options.check()


@pytest.mark.parametrize(
    ("options", "running"),
    [
        (RayOptions("10.0.0.1:6379"), RayOptions()),
        (RayOptions("10.0.0.1:6379"), RayOptions("10.0.0.2:6379")),
        (RayOptions(num_cpus=2), RayOptions(num_cpus=4)),
        (RayOptions(num_cpus=2), RayOptions()),
        (RayOptions(), RayOptions(insecure=True)),
    ],
)
def test_engine_does_not_share_what_it_did_not_ask_for(options: RayOptions, running: RayOptions) -> None:
    """Another cluster, another size, no authentication: refused, never silently different."""
    with pytest.raises(ConfigError):
        options.check_joins(running)


@pytest.mark.parametrize(
    ("options", "running"),
    [
        (RayOptions(), RayOptions("10.0.0.1:6379")),
        (RayOptions(), RayOptions(num_cpus=4)),
        (RayOptions(insecure=True), RayOptions(insecure=True)),
        (RayOptions(insecure=True), RayOptions()),
    ],
)
def test_engine_shares_what_fulfils_its_wishes(options: RayOptions, running: RayOptions) -> None:
    """Who asks for nothing special takes what is there."""
    options.check_joins(running)


def test_no_authentication_takes_two_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """REL 2.3: the environment alone is refused, the argument alone changes nothing."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert RayOptions(insecure=True).to_private_ray() == RayOptions()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="insecure=True"):
        RayOptions().to_private_ray()
    assert RayOptions(insecure=True).to_private_ray().insecure


def test_variables_come_back_whatever_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set, taken away and added ones, and those that Ray sets next to them, even when the start fails."""
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    before = dict(os.environ)
    with pytest.raises(RuntimeError), set_variables(build_environment(tmp_path / "mark", insecure=False)):
        assert "RAY_ADDRESS" not in os.environ
        assert os.environ["RAY_AUTH_MODE"] == "token"
        assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "mark")
        os.environ["PYTHONBREAKPOINT"] = "ray.util.rpdb.set_trace"
        raise RuntimeError
    assert dict(os.environ) == before


def test_token_is_never_the_same_and_in_no_file(tmp_path: Path) -> None:
    """256 fresh bits each time, handed down in the environment of Ray's processes alone."""
    tokens = {build_environment(tmp_path / "mark", insecure=False)["RAY_AUTH_TOKEN"] for _ in range(8)}
    assert len(tokens) == 8
    assert all(token is not None and len(token) == 64 for token in tokens)
    assert not list(tmp_path.iterdir())


def test_servers_get_what_is_harmless_and_the_gateway_the_rest() -> None:
    """Whatever nobody knows to be harmless stays in the program, by name and by value; nothing is lost."""
    key = ApiKey("sk-of-this-test")
    harmless = {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_ALL": "C",
        "RAY_USAGE_STATS_ENABLED": "0",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    keys = dict.fromkeys((*KEY_VARIABLES, "MY_TOKEN", "DATABASE_URL", "HTTPS_PROXY", "LD_AUDIT"), "x")
    keys |= {"SESSIONTREE_MY_KEY": "sk-of-this-test", "RAY_NODE_ID": " sk-of-this-test\n"}
    own = {"OTEL_EXPORTER_OTLP_HEADERS": "a=b", "PYTHONSTARTUP": "/x", "RAY_ADDRESS": "host:1"}
    everything = harmless | keys | own
    assert select_for_servers(harmless | keys) == harmless
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in select_for_servers(own)
    assert select_for_gateway(everything) == keys
    site, other = {"PYTHONPATH": str(RAY_SITE)}, {"PYTHONPATH": "/own/code"}
    assert (select_for_servers(site), select_for_servers(other)) == (site, {})
    del key
    assert "RAY_NODE_ID" in select_for_servers(keys), "a key that nobody holds any more is a text like others"


def test_silent_raylet_is_given_time() -> None:
    """Failures times period and time-out come to minutes, where Ray's own come to 65 s."""
    silence_ms = SYSTEM_CONFIG["health_check_period_ms"] + SYSTEM_CONFIG["health_check_timeout_ms"]
    assert SYSTEM_CONFIG["health_check_failure_threshold"] * silence_ms >= MAX_S * 1000


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("127.0.0.1", False),
        ("127.0.0.2", False),
        ("::1", False),
        ("::", True),
        ("0.0.0.0", True),  # noqa: S104 - what must be reported when it happens
        ("192.0.2.1", True),
    ],
)
def test_listener_is_open_unless_it_is_bound_to_the_loopback(address: str, is_open: bool) -> None:
    """All interfaces count as open, and so does one that others can reach."""
    assert Listener(address, 1, 1, "raylet").is_open is is_open
