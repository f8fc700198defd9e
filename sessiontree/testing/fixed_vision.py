"""An image model for tests of tools: it says what it was given to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.handles.vision import VisionAnswer
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(slots=True)
class FixedVision:
    """Answers every question with the given answer, and keeps the questions.

    Args:
        answer: What it says.
        model: The name it has.
        refusal: An error to raise instead, if given.
    """

    answer: str = "a flag"
    model: str = "seer"
    refusal: SessionTreeError | None = None
    asked: dict[str, tuple[str, tuple[ImageContent, ...]]] = field(default_factory=dict)
    """Key to question and images, in the order they came; a repeated key adds none."""

    async def ask(self, question: str, images: Sequence[ImageContent], *, key: str) -> VisionAnswer:
        """Keep the ``question`` and its ``images`` once for a ``key``; return the answer.

        Raises:
            SessionTreeError: a refusal was given.
        """
        if self.refusal is not None:
            raise self.refusal
        self.asked.setdefault(key, (question, tuple(images)))
        return VisionAnswer(self.answer, self.model)
