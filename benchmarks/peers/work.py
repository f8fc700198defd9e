"""The work every peer does: a call a turn, two arguments validated by pydantic, then the final message."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict

TOOL = "nothing"
DESCRIPTION = "Does nothing."
ARGUMENTS: dict[str, str | int] = {"path": "a.txt", "limit": 5}
ARGUMENTS_JSON = json.dumps(ARGUMENTS)
LAST_WORD = "done"


class NothingParams(BaseModel):
    """Two fields, as a small real call has."""

    model_config = ConfigDict(extra="forbid")

    path: str
    limit: int = 10


class Script:
    """What the model says, and whether all of it was done.

    Args:
        turns: Calls of each run, one a turn.
    """

    def __init__(self, turns: int) -> None:
        """Begin before the first run."""
        self.turns = turns
        self._said = 0
        self._executed = 0

    def next_call(self) -> str | None:
        """Return the id of the next call; None where the final message is due."""
        if self._said == self.turns:
            return None
        self._said += 1
        return f"call_{self._said}"

    def executed(self, path: str, limit: int) -> str:
        """The tool ran; returns what it gives."""
        assert (path, limit) == ("a.txt", 5)
        self._executed += 1
        return "ok"

    def finish(self, last_word: object) -> None:
        """Check that a run did everything, and begin again.

        Raises:
            ValueError: it did something else.
        """
        if last_word != LAST_WORD or self._executed != self.turns:
            raise ValueError(
                f"{self._executed} of {self.turns} calls ran, and the final message was {last_word!r}"
            )
        self._said = self._executed = 0
