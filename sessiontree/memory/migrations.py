"""Bringing lines of earlier exports to the current form, one version step at a time.

Source: ADR-0005, every release reads what every earlier one exported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Line], Line]
"""Takes a line as version v wrote it and returns it as of v + 1; pure, never changes its argument."""


class Ladder:
    """The steps from the first version to the current one.

    Args:
        steps: The first leads from version 1 to 2, and so on; without any, version 1 is current.
    """

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self._steps = tuple(steps)
        self.current = 1 + len(self._steps)
        """The version that is written."""

    def climb(self, line: Line, version: int) -> Line:
        """Return a line in its current form; the given one where it is current.

        Args:
            line: As it was read.
            version: Of its export, 1 up to the current one.
        """
        for step in self._steps[version - 1 :]:
            line = step(line)
        return line


LADDER = Ladder()
