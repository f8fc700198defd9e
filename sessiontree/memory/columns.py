"""What the mirror's columns are made of: numbers that grow in place, and texts kept once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

NONE: Final = -1
"""The code of no text."""
_SMALLEST: Final = 1_024


class Numbers:
    """One column of numbers. Appending costs the same however long it is."""

    def __init__(self, kind: DTypeLike) -> None:
        self._cells: NDArray[Any] = np.empty(_SMALLEST, kind)
        self._count = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def extend(self, values: NDArray[Any] | Sequence[int]) -> None:
        """Append values. What :meth:`all` returned before stays as it was."""
        needed = self._count + len(values)
        if needed > len(self._cells):
            grown = np.empty(max(needed, 2 * len(self._cells)), self._cells.dtype)
            grown[: self._count] = self._cells[: self._count]
            self._cells = grown
        self._cells[self._count : needed] = values
        self._count = needed

    def all(self) -> NDArray[Any]:
        """Return them, not copied."""
        return self._cells[: self._count]


class Texts:
    """One column of texts that repeat much: each is kept once, a row holds its code."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._kept: list[str] = []
        self._rows = Numbers(np.int32)

    def extend(self, values: Sequence[str | None]) -> None:
        """Append values."""
        self._rows.extend([NONE if value is None else self._code_of(value) for value in values])

    def all(self) -> NDArray[np.int32]:
        """Return the rows' codes, not copied."""
        return self._rows.all()

    def code(self, text: str) -> int | None:
        """Return the code of a text; None where no row ever had it."""
        return self._codes.get(text)

    def known(self) -> dict[str, int]:
        """Return the codes of all texts there are by now."""
        return dict(self._codes)

    def at(self, row: int) -> str:
        """Return the text of a row that has one."""
        return self._kept[int(self._rows.all()[row])]

    def has(self, row: int) -> bool:
        """Whether a row has a text."""
        return bool(self._rows.all()[row] != NONE)

    def _code_of(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._kept)
            self._kept.append(text)
        return code
