"""Connections that go only to judged addresses.

A name is resolved where the connection is made, every address it has is judged, and one of those very
addresses is connected to: a second answer of the name server is never asked for, so there is none to differ.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

import httpcore

from sessiontree.contracts.errors import ExecutionError
from sessiontree.web.rules import AddressRules

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, best first; raises OSError where it has none."""
MAX_TRIED = 4
"""Addresses of one host that are tried."""


async def system_addresses(host: str, port: int) -> list[str]:
    """Return a name's addresses as the system's resolver gives them, in its order.

    Raises:
        OSError: there are none, or nobody answers.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class JudgingBackend(httpcore.AsyncNetworkBackend):
    """Connects to judged addresses only, by way of another backend that is given the address itself.

    The name stays what certificate and ``Host`` header are about; only the connection goes by address.

    Args:
        rules: Judge every address.
        resolve: Gives a name's addresses.
        connector: Makes the connections; by default the one of httpcore for asyncio.
    """

    def __init__(
        self, rules: AddressRules, resolve: Resolve, connector: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self._rules = rules
        self._resolve = resolve
        self._connector = httpcore.AnyIOBackend() if connector is None else connector

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first judged address that answers.

        Raises:
            PermissionDenied: the host has an address that may not be reached.
            ExecutionError: it has none.
            httpcore.ConnectError, httpcore.ConnectTimeout: none answers.
        """
        addresses = self._rules.vetted(host, port, await self._addresses_of(host, port))[:MAX_TRIED]
        share_s = None if timeout is None else timeout / len(addresses)
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._connector.connect_tcp(
                    address, port, share_s, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or ExecutionError(f"{host} has no address")

    async def _addresses_of(self, host: str, port: int) -> Sequence[str]:
        if ":" in host or host.replace(".", "").isdigit():
            return [host]  # already in its one form; a resolver might read it differently
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ExecutionError(f"the name {host!r} can't be resolved: {error}") from error
        if not found:
            raise ExecutionError(f"the name {host!r} has no address")
        return found
