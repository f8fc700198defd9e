"""Questions about images to a model of their own, and the handle that asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_VISION_CHARS: Final = 40_000
"""Maximum length of an answer; a longer one is cut."""


@dataclass(frozen=True, slots=True)
class VisionAnswer:
    """What a model says about images."""

    text: str
    """Never blank."""
    model: str
    """Name of the model that answered."""


class Vision(Protocol):
    """Asks the agent's image model, at most once for each key."""

    async def ask(self, question: str, images: Sequence[ImageContent], *, key: str) -> VisionAnswer:
        """Return the model's answer about ``images``; what it used is charged to the session.

        The images are fitted first, in the process for images, so the model sees no metadata.

        Args:
            question: What to find out.
            images: At least one, in the order in which the question may number them.
            key: Identifies the call. A repeat with the same key gets the first answer and asks nothing.

        Raises:
            ImageRefused: an image is damaged, too large or of an unsupported format; nothing was asked.
            ExecutionError: the model failed, said nothing, did not answer in time, or the budget can't pay
                for it; names the model.
        """
        ...
