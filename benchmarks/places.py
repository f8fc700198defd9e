"""Where a benchmark's tree works, and where its state is: two fresh directories, side by side."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def places() -> Iterator[tuple[Path, Path]]:
    """Yield an empty workspace and a place for state outside it; both are removed at the end."""
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name, "workspace")
        workspace.mkdir()
        yield workspace, Path(name, "state")
