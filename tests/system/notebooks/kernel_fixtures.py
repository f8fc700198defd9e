"""Running cells in a kernel of their own process, as a notebook does."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from typing import Any, Self

from tests.system.forked_fixtures import Forked, fork

PROGRAM = "tests.system.notebooks.kernel_program"
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
    """A kernel and its one frontend. Use it as a context manager; at its end nothing of it may complain.

    Args:
        is_forked: Whether its interpreter has loaded the package already, and needs no second to start.
    """

    def __init__(self, *, is_forked: bool = False) -> None:
        """Start it."""
        asked, typing = os.pipe()
        answers, answering = os.pipe()
        self._asking = os.fdopen(typing, "w", encoding="utf-8")
        self._answers = os.fdopen(answers, encoding="utf-8")
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by close()
        environment = {**os.environ, "PYTHONASYNCIODEBUG": ""}
        self._process: subprocess.Popen[bytes] | Forked
        if not is_forked:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM],
                stdin=asked,
                stdout=answering,
                stderr=self._errors,
                start_new_session=True,
                env=environment,
            )
        else:
            started = fork(
                PROGRAM,
                kind="module",
                stdin=asked,
                stdout=answering,
                stderr=self._errors.fileno(),
                environment=environment,
                own_session=True,
            )
            self._process = Forked(*started)
        os.close(asked)
        os.close(answering)

    def run(self, cell: str, *typed: str) -> Outcome:
        """Run a cell to its end.

        Args:
            cell: Its source.
            typed: Lines for its ``input()``.

        Raises:
            CellError: the cell raised.
        """
        order = {"cell": textwrap.dedent(cell), "typed": typed}
        self._asking.write(json.dumps(order) + "\n")
        self._asking.flush()
        answer = self._answers.readline()
        assert answer, self.close()
        told = json.loads(answer)
        if told["error"] is not None:
            raise CellError(*told["error"])
        return Outcome(told["printed"], told["shown"])

    def value(self, cell: str, *typed: str) -> Any:
        """Run a cell and return the plain data of its last expression."""
        return self.run(cell, *typed).value

    def close(self) -> str:
        """End it as a shut-down kernel ends, and return what it complained about."""
        self._asking.close()
        try:
            self._process.wait(END_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._answers.close()
        with self._errors as errors:
            errors.seek(0)
            return errors.read()

    def __enter__(self) -> Self:
        """Return the kernel."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End it."""
        complaints = self.close()
        if kind is None and (self._process.returncode, complaints) != (0, ""):
            raise AssertionError(f"the kernel ended with {self._process.returncode}: {complaints}")
