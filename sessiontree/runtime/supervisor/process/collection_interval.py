"""How often Python looks for garbage while a process runs trees.

Trees keep many objects in use, and most of theirs are freed without a search. The searches of Python's usual
threshold take a quarter of the processor time of a large tree.
"""

from __future__ import annotations

import gc
import threading
from typing import Final

YOUNG: Final = 10_000
"""How many objects more than before there are when the next search begins."""


class CollectionInterval:
    """Raises the threshold of the process while it has at least one holder.

    Args:
        young: The threshold while held; a higher one that is already in force stays, and so does 0, which
            stands for no searches.
    """

    def __init__(self, young: int) -> None:
        self._young = young
        self._lock = threading.Lock()
        self._holders = 0
        self._before = (0, 0, 0)

    def hold(self) -> None:
        """Raise the threshold, if this is the first holder."""
        with self._lock:
            if self._holders == 0:
                self._before = gc.get_threshold()
                usual, *others = self._before
                gc.set_threshold(usual and max(usual, self._young), *others)
            self._holders += 1

    def release(self) -> None:
        """Restore the threshold, if this was the last holder."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                gc.set_threshold(*self._before)


COLLECTIONS: Final = CollectionInterval(YOUNG)
"""The threshold belongs to the process, and so does the count of holders."""
