"""Opening trees for behaviours: the same test runs on every backend, in a workspace of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree import Runtime, SessionTree
from sessiontree.models.port import Model
from sessiontree.runtime import BackendName

BACKENDS: tuple[BackendName, ...] = ("local",)
"""Every backend there is; a behaviour that does not hold on one of them is a bug of that backend."""


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens trees on one backend, over one workspace and one state directory.

    ``open_tree(model, …)`` takes what :class:`~sessiontree.SessionTree` takes and is used as an async
    context manager.
    """

    backend: BackendName
    workspace: Path
    state_dir: Path

    def __call__(self, model: Model, **options: Any) -> SessionTree:
        """Return a tree that is not open yet."""
        given = {"state_dir": self.state_dir, "backend": self.backend, **options}
        return SessionTree(given.pop("workspace", self.workspace), model=model, **given)

    async def resume(self, tree_id: str, model: Model, **options: Any) -> SessionTree:
        """Return a tree taken up from the journal, open."""
        given = {"state_dir": self.state_dir, "backend": self.backend, **options}
        return await SessionTree.resume(tree_id, model=model, **given)

    def runtime(self, **options: Any) -> Runtime:
        """Return a runtime over the state directory, for several trees."""
        return Runtime(options.pop("state_dir", self.state_dir), backend=self.backend, **options)
