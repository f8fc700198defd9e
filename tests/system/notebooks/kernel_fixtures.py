"""Running cells in a kernel of their own process, as a notebook does."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import Any, Self

END_S = 120.0


class CellError(Exception):
    """What a cell raised, reported by its name and words."""

    def __init__(self, name: str, words: str) -> None:
        """Keep both."""
        super().__init__(f"{name}: {words}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell."""

    printed: str
    shown: str | None
    """Its last expression, as it is displayed."""

    @property
    def value(self) -> Any:
        """The last expression, where it is plain data."""
        return None if self.shown is None else ast.literal_eval(self.shown)


class Kernel:
    """A kernel and its one frontend. Use it as a context manager; at its end nothing of it may complain."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.notebooks.kernel_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONASYNCIODEBUG": ""},
        )

    def run(self, cell: str, *typed: str) -> Outcome:
        """Run a cell to its end.

        Args:
            cell: Its source.
            typed: Lines for its ``input()``.

        Raises:
            CellError: the cell raised.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"cell": textwrap.dedent(cell), "typed": typed}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._process.communicate()[1]
        told = json.loads(answer)
        if told["error"] is not None:
            raise CellError(*told["error"])
        return Outcome(told["printed"], told["shown"])

    def value(self, cell: str, *typed: str) -> Any:
        """Run a cell and return the plain data of its last expression."""
        return self.run(cell, *typed).value

    def close(self) -> str:
        """End it as a shut-down kernel ends, and return what it complained about."""
        try:
            _, complaints = self._process.communicate(timeout=END_S)
        finally:
            self._process.kill()
            self._process.wait()
        return complaints

    def __enter__(self) -> Self:
        """Return the kernel."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End it."""
        complaints = self.close()
        if kind is None and (self._process.returncode, complaints) != (0, ""):
            raise AssertionError(f"the kernel ended with {self._process.returncode}: {complaints}")
