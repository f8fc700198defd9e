"""Answer: what is said about a question: which places, and what stands there now."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_PLACES = 20
"""Most places of one answer."""


class _AnswerWord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AskOrder(_AnswerWord):
    """What the program asks of Main."""

    question: str
    limit: int = Field(ge=1, le=MAX_PLACES)
    """Most places wanted."""


class AnswerPlace(_AnswerWord):
    """One place that answers."""

    path: str
    first: int
    """First line as it is now, from 1."""
    last: int
    """Last line, inclusive."""
    kind: str
    """``function``, ``class``, ``file`` or ``section``."""
    name: str
    """Qualified name; headings of a section."""
    summary: str
    """What its file says about it; empty where it says nothing."""
    score: float
    """How well it fits, 0 to about 1."""
    changed: bool
    """Whether it is another text now than when it was surveyed."""
    excerpt: tuple[str, ...] = ()
    """Its first lines as they are now."""

    @property
    def citation(self) -> str:
        """Path and lines, such as ``src/app.py#L3-L9``."""
        return f"{self.path}#L{self.first}" + ("" if self.last == self.first else f"-L{self.last}")


class Answer(_AnswerWord):
    """What became of a question."""

    surveyed: bool
    """Whether memory knows any survey of the workspace."""
    places: tuple[AnswerPlace, ...] = ()
    """Best first."""
    gone: int = 0
    """Good places that are no longer there."""


def answer_of(text: str) -> Answer | None:
    """Return the answer a text is, None where it is none."""
    try:
        return Answer.model_validate_json(text)
    except ValidationError:
        return None
