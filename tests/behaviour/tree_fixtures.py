"""Opening trees for behaviours: the same test runs on every backend, in a workspace of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ray import cloudpickle

from sessiontree import Runtime, SessionTree
from sessiontree.api.agents.model_choice import ModelLike
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.backends.ray.client.serialization import pack_value
from sessiontree.models.port import Model

T = TypeVar("T")

BACKENDS: tuple[BackendName, ...] = ("local",)
"""Every backend there is; a behaviour that does not hold on one of them is a bug of that backend."""
TRAVELLED = "local-travelled"
"""The local backend with what another one asks of tests: see :attr:`Opener.travels` and ``shared``."""
MOMENT_S: dict[BackendName, float] = {"local": 0.1, "ray": 0.5}
"""See :attr:`Opener.moment_s`."""


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens trees on one backend, over one workspace.

    ``open_tree(model, …)`` takes what :class:`~sessiontree.SessionTree` takes and is used as an async
    context manager. A test leaves it open which runtime serves its trees. A tree that is given ``slots`` or
    ``state_dir`` has one of its own, as have all trees of a test marked ``own_runtime``: for tests of what
    closing a runtime does, of its files, or of what a second one finds.
    """

    backend: BackendName
    workspace: Path
    state_dir: Path
    """Where the journal is of a tree that has a runtime of its own."""
    travels: bool = False
    """Whether model, tools and agents are pickled and made again, as on their way to another process."""
    shared: Runtime | None = None
    """Serves the trees; None where each has a runtime of its own."""

    @property
    def moment_s(self) -> float:
        """A time to wait for: long enough for a few sessions to get to work, and no longer."""
        return MOMENT_S[self.backend]

    def longer_moments(self) -> Iterator[float]:
        """Yield moments to try in turn, for what must have begun before the moment is over."""
        for times in (1, 4, 16, 64):
            yield self.moment_s * times

    def __call__(self, model: ModelLike, **options: Any) -> SessionTree:
        """Return a tree that is not open yet."""
        given = self._ensure_model(options)
        return SessionTree(given.pop("workspace", self.workspace), model=self._sent(model), **given)

    async def resume(self, tree_id: str, model: Model, **options: Any) -> SessionTree:
        """Return a tree taken up from the journal, open."""
        return await SessionTree.resume(tree_id, model=self._sent(model), **self._ensure_model(options))

    def runtime(self, **options: Any) -> Runtime:
        """Return a runtime over the state directory, for several trees."""
        return Runtime(options.pop("state_dir", self.state_dir), backend=self.backend, **options)

    def elsewhere(self, name: str) -> Opener:
        """Return an opener of trees with runtimes of their own, over another state directory."""
        return replace(self, state_dir=self.state_dir / name, shared=None)

    def _ensure_model(self, options: dict[str, Any]) -> dict[str, Any]:
        names = options.keys() & {"tools", "agents", "hooks", "models"}
        sent: dict[str, Any] = {name: self._sent(options[name]) for name in names}
        if self.shared is None or not options.keys().isdisjoint({"runtime", "slots", "state_dir"}):
            return {"state_dir": self.state_dir, "backend": self.backend, **options, **sent}
        return {"runtime": self.shared, **options, **sent}

    def _sent(self, value: T) -> T:
        if not self.travels:
            return value
        arrived: T = cloudpickle.loads(pack_value(value, "what a test sends"))
        return arrived
