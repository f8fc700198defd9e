"""Opening sync trees: the same test runs on every backend, in a workspace of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.models.port import Model
from sessiontree.sync import Runtime, SessionTree

PATIENCE_S = 60.0
"""How long a test waits for something that must happen."""


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens sync trees on one backend, over one workspace and one state directory."""

    backend: BackendName
    workspace: Path
    state_dir: Path
    shared: Runtime | None = None
    """Serves the trees; None where each has a runtime of its own."""

    def __call__(self, model: Model, **options: Any) -> SessionTree:
        """Return a tree that is not open yet."""
        given = self._ensure_model(options)
        return SessionTree(given.pop("workspace", self.workspace), model=model, **given)

    def resume(self, tree_id: str, model: Model, **options: Any) -> SessionTree:
        """Return a tree taken up from the journal, open."""
        return SessionTree.resume(tree_id, model=model, **self._ensure_model(options))

    def _ensure_model(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.shared is None:
            return {"state_dir": self.state_dir, "backend": self.backend, **options}
        return {"runtime": self.shared, **options}

    def runtime(self) -> Runtime:
        """Return a runtime over the state directory."""
        return Runtime(self.state_dir, backend=self.backend)


class Caller(threading.Thread):
    """A thread that makes one call and keeps what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        """Begin at once."""
        super().__init__(daemon=True)
        self._call = call
        self._outcome: list[Any] = []
        self._failure: list[BaseException] = []
        self.start()

    def run(self) -> None:
        """Make the call."""
        try:
            self._outcome.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised again where the outcome is asked for
            self._failure.append(error)

    def outcome(self) -> Any:
        """Return what the call returned, or raise what it raised; it must have ended in time."""
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the call never returned"
        if self._failure:
            raise self._failure[0]
        return self._outcome[0]


@contextmanager
def interrupted_when(ready: Callable[[], object]) -> Iterator[None]:
    """Press Ctrl-C for the main thread once ``ready`` has returned; the block ends by KeyboardInterrupt."""
    main = threading.main_thread().ident
    assert main == threading.get_ident(), "Ctrl-C reaches the main thread alone"

    def press() -> None:
        ready()
        signal.pthread_kill(main, signal.SIGINT)

    pressing = None
    try:
        pressing = Caller(press)
        yield
        pressing.outcome()
    except KeyboardInterrupt:
        assert pressing is not None, "pressed before the block was entered"
        pressing.outcome()
    else:
        raise AssertionError("nothing was interrupted")


def blocked_in(tree: SessionTree) -> Callable[[], None]:
    """Return a function that returns once a thread waits in a tree and is asked nothing."""

    def wait() -> None:
        waiters = tree._crossing.prompts._news._waiters  # type: ignore[attr-defined]
        pause = threading.Event()
        for _ in range(int(PATIENCE_S * 200)):
            if waiters:
                return
            pause.wait(0.005)
        raise AssertionError("nobody ever waited")

    return wait
