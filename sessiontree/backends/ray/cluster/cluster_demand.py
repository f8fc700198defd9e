"""What the trees of a runtime ask of a cluster: CPUs that Ray counts as used, so that it gets nodes for them.

Supervisors and hosts ask for no CPUs, because a session waits most of its time. So a runtime reserves whole
CPUs of the cluster for its open trees, wherever they are. What can't be reserved yet is what Ray reports to
its autoscaler. Ray gives the reservations back when the program ends, however it ends.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ray.util.placement_group import placement_group, remove_placement_group

MAX_CPUS: Final = 512
"""How many CPUs one runtime reserves at most."""
MAX_CHANGE: Final = 64
"""How many reservations are made or given back in one call; the next call goes on."""


class ClusterDemand:
    """Reserves CPUs for open trees.

    Args:
        tree_cpus: CPUs for each open tree; 0 = none are reserved.
    """

    def __init__(self, tree_cpus: float) -> None:
        self._tree_cpus = tree_cpus
        self._held: list[Any] = []
        """One reservation for each CPU, the oldest first: the newest ones wait for new nodes."""

    def ask_for(self, trees: int) -> None:
        """Reserve CPUs for so many open trees, or give some back; with 0 trees, all of them. Blocks."""
        wanted = min(MAX_CPUS, math.ceil(trees * self._tree_cpus))
        for _ in range(min(MAX_CHANGE, wanted - len(self._held))):
            self._held.append(placement_group([{"CPU": 1}]))
        most = len(self._held) if trees == 0 else MAX_CHANGE
        for _ in range(min(most, len(self._held) - wanted)):
            remove_placement_group(self._held.pop())
