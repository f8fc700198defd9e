"""What listens is reported as the kernel knows it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.backends.ray.engine.engine_security import (
    find_key_variables,
    find_listeners,
    read_permissions,
)


@pytest.mark.parametrize(
    ("family", "address", "told"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "0.0.0.0"),  # noqa: S104 - what must be reported when it happens
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_listening_socket_is_found_with_address_port_and_process(
    family: socket.AddressFamily, address: str, told: str
) -> None:
    """Both families, their bytes in the right order; gone when closed."""
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError:
            assert family is socket.AF_INET6, "every system has IPv4"
            pytest.skip(f"the kernel has no IPv6, so nothing can listen at {address}")
        server.listen()
        port = server.getsockname()[1]
        found = [listener for listener in find_listeners([os.getpid()]) if listener.port == port]
        assert [(listener.address, listener.pid) for listener in found] == [(told, os.getpid())]
        assert found[0].process
    assert port not in [listener.port for listener in find_listeners([os.getpid()])]


def test_connected_socket_is_no_listener() -> None:
    """Only what takes connections counts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            ports = [listener.port for listener in find_listeners([os.getpid()])]
            assert port in ports
            assert client.getsockname()[1] not in ports


def test_nothing_has_no_mode(tmp_path: Path) -> None:
    """A path that is missing, or not known, is reported as none, not as an error."""
    assert read_permissions(None) is None
    assert read_permissions(tmp_path / "missing") is None


def test_variables_that_look_like_keys_are_named() -> None:
    """Without their values; Ray's own token and what is harmless are not among them."""
    given = {"OPENAI_API_KEY": "x", "my_token": "y", "RAY_AUTH_TOKEN": "z", "PATH": "/bin", "KEYS": "k"}
    words = [sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(words, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        assert find_key_variables(process.pid) == ["OPENAI_API_KEY", "my_token"]
        process.stdin.close()
    assert find_key_variables(process.pid) == find_key_variables(None) == []
