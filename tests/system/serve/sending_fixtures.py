"""Whether a server sends small answers at once."""

from __future__ import annotations

import socket

import uvicorn


def sends_at_once(server: uvicorn.Server | None) -> bool:
    """Whether all open connections of a server send without waiting for acknowledgements; one is open."""
    assert server is not None
    connections = server.server_state.connections
    assert connections
    lines = [each.transport.get_extra_info("socket") for each in connections]
    return all(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for line in lines)
