"""What a session holds of its agent's image model: it fits the images and asks, here or by the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.handles.vision import VisionAnswer
from sessiontree.contracts.settings.settings import ImageLimits
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.messages import AssistantMessage, ImageContent
from sessiontree.dispatch.images import ImageCleaner
from sessiontree.models.answers import check_reply, make_failure
from sessiontree.models.port import InProcessModel, ModelRequest
from sessiontree.runtime.gateway.vision_prompt import (
    INSTRUCTION,
    VISION_TURN,
    make_vision_error,
    make_vision_message,
)
from sessiontree.runtime.rights.session_rights import Link


class SessionVision:
    """Asks the image model of one session's agent.

    Args:
        link: Leads to the supervisor.
        spec: The session.
        config: Its agent's configuration.
        instant: The image model, if it runs in this process.
    """

    __slots__ = ("_cleaner", "_dropping", "_instant", "_link", "_model", "_spec")

    def __init__(
        self, link: Link, spec: SessionSpec, config: AgentConfig, instant: InProcessModel | None
    ) -> None:
        self._link = link
        self._spec = spec
        self._model = config.image_model
        self._instant = instant
        self._cleaner = ImageCleaner(config.images or ImageLimits())
        self._dropping: set[asyncio.Task[None]] = set()

    async def ask(self, question: str, images: Sequence[ImageContent], *, key: str) -> VisionAnswer:
        """Fit the images and ask; a repeat with the same key gets the first answer."""
        count = len(images)
        fitted = [
            (await self._cleaner.clean(image, f"image {at} of {count}")).content
            for at, image in enumerate(images, 1)
        ]
        reply = None if self._instant is None else self._answer_here(self._instant, question, fitted)
        services, grant = self._link.get_services(), self._link.grant
        try:
            return await services.ask_image_model(grant, question, tuple(fitted), key, reply)
        except asyncio.CancelledError:
            dropping = asyncio.create_task(self._drop(key))
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)
            raise

    async def _drop(self, key: str) -> None:
        with suppress(SessionTreeError):  # the session is let go: its supervisor drops the question then
            await self._link.get_services().drop_image_question(self._link.grant, key)

    def _answer_here(
        self, model: InProcessModel, question: str, images: Sequence[ImageContent]
    ) -> AssistantMessage:
        spec = self._spec
        request = ModelRequest(
            spec.session_id,
            spec.kind,
            VISION_TURN,
            INSTRUCTION,
            (),
            (make_vision_message(question, images),),
            None,
            spec.agent,
            self._model,
        )
        try:
            return check_reply(model.reply(request), VISION_TURN)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a model may raise anything; the tool gets the reason
            raise make_vision_error(self._model, make_failure(error, spec.session_id)) from error
