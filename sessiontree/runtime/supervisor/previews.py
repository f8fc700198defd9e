"""The previews of a supervisor's trees: published by sessions, taken back when these end.

The supervisor keeps them, because it lives as long as its trees: a session that published a page leaves its
host while somebody looks at it. If the supervisor is lost, its previews are gone with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.previews import PublishedPage
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.runtime.scheduling.live_session import LiveSession
from sessiontree.version import explain_installation


class PageHost(Protocol):
    """What serves pages to people."""

    def publish(
        self, tree_id: str, session: str, name: str, files: Mapping[str, bytes], entry: str
    ) -> PublishedPage:
        """Publish a page, or raise ExecutionError."""
        ...

    def forget(self, tree_id: str, session: str | None = None) -> None:
        """Take back the pages of a session, or of a whole tree."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class TreePreviews:
    """The previews of one supervisor; it listens once the first is published."""

    def __init__(self) -> None:
        self._host: PageHost | None = None

    def publish(self, live: LiveSession, name: str, files: Mapping[str, bytes], entry: str) -> PublishedPage:
        """Publish a page of a session.

        Raises:
            ExecutionError: there is too much of it, or this machine can't serve it.
        """
        if self._host is None:
            self._host = _load_host()
        return self._host.publish(live.controller.config.tree_id, live.session, name, files, entry)

    def on_session_over(self, tree_id: str, session: str) -> None:
        """Take back the pages of a session that has ended, and those of the tree with its Main."""
        if self._host is not None:
            self._host.forget(tree_id, None if session == MAIN else session)

    def on_tree_closed(self, tree_id: str) -> None:
        """Take back the pages of a tree that is not open here any more."""
        if self._host is not None:
            self._host.forget(tree_id)

    async def close(self) -> None:
        """End the server of previews, if it was needed."""
        if self._host is not None:
            await self._host.close()


def _load_host() -> PageHost:
    """Return a server of previews. It is loaded when it is needed: its library is an extra."""
    try:
        from sessiontree.previews.preview_server import PreviewServer
    except ModuleNotFoundError as error:
        words = f"previews need the extra serve ({error.name} is missing): {explain_installation('serve')}"
        raise ExecutionError(words) from error
    return PreviewServer()
