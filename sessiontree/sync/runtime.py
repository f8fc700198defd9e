"""A runtime that serves sync trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sessiontree.api import runtime
from sessiontree.api.runtime import BackendName, Enforcement
from sessiontree.memory.settings import MemorySettings
from sessiontree.sync.blocking_bridge import Crossing

if TYPE_CHECKING:
    from sessiontree.contracts.tree_summary import TreeSummary


class Runtime:
    """Pools and supervisor over one state directory; serves many sync trees.

    Args:
        state_dir: Where journal and memory lie.
        backend: This and all others as for :class:`sessiontree.Runtime`.
        slots: Most sessions embodied at a time; None = the backend's own number.
        address: Cluster to connect to.
        num_cpus: CPUs of a private Ray.
        insecure: Allow a private Ray without authentication.
        kernel_enforcement: Whether Workers run where the kernel can't make their processes read-only.
        max_host_bytes: Most memory one session's host may hold.
        memory: Where memory lies, and what embeds its texts.
        pass_env: Names of environment variables that tools get beside harmless ones.
        tree_id: Write the journal that holds this tree.
    """

    def __init__(  # noqa: PLR0913 - the settings of the runtime, passed on
        self,
        state_dir: str | Path,
        *,
        backend: BackendName = "ray",
        slots: int | None = None,
        address: str | None = None,
        num_cpus: int | None = None,
        insecure: bool = False,
        kernel_enforcement: Enforcement = "required",
        max_host_bytes: int | None = None,
        memory: MemorySettings | None = None,
        pass_env: Sequence[str] = (),
        tree_id: str | None = None,
    ) -> None:
        """Choose; ``local`` opens its journal at once, ``ray`` with the first tree.

        Raises:
            ConfigError: a setting is wrong; says which.
            JournalError: the state directory can't be used.
        """
        open_runtime = partial(
            runtime.Runtime,
            state_dir,
            backend=backend,
            slots=slots,
            address=address,
            num_cpus=num_cpus,
            insecure=insecure,
            kernel_enforcement=kernel_enforcement,
            max_host_bytes=max_host_bytes,
            memory=memory,
            pass_env=pass_env,
            tree_id=tree_id,
        )
        self._crossing = Crossing()
        self._runtime: runtime.Runtime | None = None
        self._crossing.open(self._end)
        try:
            self._crossing.run(self._open, open_runtime)
        except BaseException:
            self.close()
            raise

    def _open(self, open_runtime: Callable[[], runtime.Runtime]) -> None:
        self._runtime = open_runtime()
        self.state_dir = self._runtime.state_dir
        self.journal_dir = self._runtime.journal_dir

    async def _end(self) -> None:
        if self._runtime is not None:
            await self._runtime.close()

    @property
    def on_loop(self) -> runtime.Runtime:
        """The runtime itself, which belongs to the loop of the sync trees."""
        assert self._runtime is not None  # noqa: S101 - it was opened, or there is no object to ask
        return self._runtime

    def trees(self, purpose: str | None = None) -> list[TreeSummary]:
        """Return every tree of the state directory, oldest first, those of other programs among them.

        Args:
            purpose: Only those opened with exactly this ``purpose``; None = all.

        Raises:
            JournalError: a journal can't be read.
        """
        found: list[TreeSummary] = self._crossing.run(self.on_loop.trees, purpose)
        return found

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
