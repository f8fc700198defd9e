"""A runtime that serves sync trees."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from sessiontree import runtime
from sessiontree.runtime import BackendName
from sessiontree.sync.crossing import Crossing


class Runtime:
    """Pools and supervisor over one state directory; serves many sync trees.

    Args:
        state_dir: Where the journal lies; locked while the runtime is open.
        backend: As for :class:`sessiontree.Runtime`.
        slots: Most sessions embodied at a time; None = the backend's own number.
    """

    def __init__(
        self, state_dir: str | Path, *, backend: BackendName = "local", slots: int | None = None
    ) -> None:
        """Open the state directory.

        Raises:
            ConfigError: there is no such backend, or ``slots`` is below 1.
            JournalError: the state directory can't be used.
        """
        self._crossing = Crossing()
        self._runtime: runtime.Runtime | None = None
        self._crossing.open(self._end)
        try:
            self._crossing.run(self._open, state_dir, backend, slots)
        except BaseException:
            self.close()
            raise

    def _open(self, state_dir: str | Path, backend: BackendName, slots: int | None) -> None:
        self._runtime = runtime.Runtime(state_dir, backend=backend, slots=slots)
        self.state_dir = self._runtime.state_dir

    async def _end(self) -> None:
        if self._runtime is not None:
            await self._runtime.close()

    @property
    def on_loop(self) -> runtime.Runtime:
        """The runtime itself, which belongs to the loop of the sync trees."""
        assert self._runtime is not None  # noqa: S101 - it was opened, or there is no object to ask
        return self._runtime

    def close(self) -> None:
        """End hosts and supervisor; trees stay in the journal and can be resumed."""
        self._crossing.close()

    def __enter__(self) -> Self:
        """Return the runtime."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
