"""How many examples a property gets: one dial for the whole run, SESSIONTREE_TEST_EXAMPLES."""

from __future__ import annotations

import os
from typing import Final

SHORT: Final = 20
"""Examples of a property that does not name a number, in `make test`."""
WHOLE: Final = 500
"""At this setting and above, every property gets the number that it names; `make test-long` sets it."""
EXAMPLES: Final = int(os.environ.get("SESSIONTREE_TEST_EXAMPLES", str(SHORT)))
"""Examples of a property that does not name a number, in this run."""


def examples(whole: int) -> int:
    """Return how many examples a property gets in this run.

    A search for a planted bug does not ask: it ends with the first that finds the bug.

    Args:
        whole: How many it gets in `make test-long`; a shorter run gives it a share, and never less than
            a property that names no number gets.
    """
    return min(whole, max(EXAMPLES, whole * EXAMPLES // WHOLE))
