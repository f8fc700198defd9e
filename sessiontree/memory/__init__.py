"""What sessions remember: the store of records, its search, and what turns text into vectors.

Room: floor 3; the only room that imports LanceDB, and numpy with it. Importing the room itself loads neither:
``sessiontree.memory.store`` does. One process writes a store; what was acknowledged survives a kill.
Not here: who may ask (kernel), in which process it runs (actors), or how a model asks (tools).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

THREAD_LIMITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LANCE_CPU_THREADS": "2",
        "LANCE_IO_THREADS": "2",
        "TOKIO_WORKER_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
)
"""Environment for a process that does nothing but hold a store; its libraries read it when they start."""
