"""What a person sees: the lines a terminal shows once everything written to it has been carried out."""

from __future__ import annotations

import re

_STEP = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Glass:
    """A terminal that never scrolls and knows what pictures need: up, erase a line, hide the cursor."""

    def __init__(self, written: str = "") -> None:
        """Begin with an empty screen and show what was written."""
        self.lines = [""]
        self.row = 0
        self.column = 0
        self.is_cursor_shown = True
        self.write(written)

    def write(self, text: str) -> None:
        """Carry out what is written; anything a picture has no need of is an error."""
        place = 0
        while place < len(text):
            step = _STEP.match(text, place)
            assert step is not None, f"no terminal is asked for this: {text[place : place + 20]!r}"
            place = step.end()
            codes, letter, move, words = step.groups()
            if letter:
                self._control(codes, letter)
            elif move == "\r":
                self.column = 0
            elif move == "\n":
                self.row, self.column = self.row + 1, 0
                if self.row == len(self.lines):
                    self.lines.append("")
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + words + line[self.column + len(words) :]
                self.column += len(words)

    def _control(self, codes: str, letter: str) -> None:
        if letter == "A":
            self.row -= int(codes or 1)
            assert self.row >= 0, "the cursor went above what was written"
        elif letter == "K":
            assert codes == "2"
            self.lines[self.row] = ""
        elif letter in "hl":
            assert codes == "?25"
            self.is_cursor_shown = letter == "h"
        else:
            assert letter == "m", f"no picture needs {codes}{letter}"

    @property
    def seen(self) -> list[str]:
        """All lines, without blanks at their ends, and without empty ones at the end."""
        lines = [line.rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines
