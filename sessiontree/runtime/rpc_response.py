"""What the processes of a tree tell each other and the program."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from sessiontree.contracts.errors import SessionTreeError, words_of


@dataclass(frozen=True, slots=True)
class RpcResponse:
    """What came of something asked, or the error it was refused with."""

    incarnation: str
    """Names the process that answered: another one knows nothing of what was open."""
    value: Any
    error: Exception | None = None

    def taken(self) -> Any:
        """Return the value.

        Raises:
            Exception: as it was raised at the other end.
        """
        if self.error is not None:
            raise self.error
        return self.value


def portable(error: Exception) -> Exception:
    """Return an error that survives the way to another process."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was packed just before
    except Exception:  # noqa: BLE001 - whatever it holds, its words are what matters
        return SessionTreeError(words_of(error))
    return error


@dataclass(frozen=True, slots=True)
class Hello:
    """A host that can serve, or says why it can't."""

    pid: int
    level: str
    """Confinement in force, such as ``structural`` or ``landlock-7+seccomp``."""
    failure: str | None = None
    """Why it serves nobody."""
    reaper: int = 0
    """Process that ends what the host leaves behind; 0 = there is none."""


@dataclass(frozen=True, slots=True)
class HostHealth:
    """How a host stands now."""

    pid: int
    lag_s: float
    """For how long it has been deaf to everything but one thing."""
    embodied: tuple[str, int] | None
    """The session embodied and its epoch."""
    resident_bytes: int
