"""A connection to a judged address, for protocols that others speak."""

from __future__ import annotations

import httpcore


class WebConnection:
    """Bytes to and from one judged address.

    Args:
        stream: The connection, made by the judging backend.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int) -> bytes:
        """Return the next bytes, at most ``max_bytes``; none at the end.

        Raises:
            OSError: the connection was lost.
        """
        try:
            return await self._stream.read(max_bytes)
        except httpcore.NetworkError as error:
            raise ConnectionError(str(error)) from error

    async def write(self, data: bytes) -> None:
        """Send bytes; raises as :meth:`read`."""
        try:
            await self._stream.write(data)
        except httpcore.NetworkError as error:
            raise ConnectionError(str(error)) from error

    async def close(self) -> None:
        """Close the connection; raises as :meth:`read`."""
        try:
            await self._stream.aclose()
        except httpcore.NetworkError as error:
            raise ConnectionError(str(error)) from error
