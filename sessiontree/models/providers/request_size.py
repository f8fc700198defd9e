"""The size of a question, compared with what its provider takes before anything is sent.

A session answers an overflow by leaving out images and cutting texts. Told here, it does so without sending
tens of megabytes to be refused.
"""

from __future__ import annotations

from sessiontree.contracts.errors import ContextOverflow
from sessiontree.contracts.jsonable import dump_json
from sessiontree.contracts.messages import ImageContent, TextContent, ThinkingContent, ToolCall
from sessiontree.models.port import ModelRequest
from sessiontree.models.providers.provider_model import ProviderModel


def check_size(request: ModelRequest, model: ProviderModel) -> None:
    """Refuse a question that its provider refuses for certain.

    Bytes are counted as characters of texts and of images in base64, which is never more than is sent.
    A server at another address has limits of its own, which only its answer tells.

    Raises:
        ContextOverflow: the question has too many images or too many bytes; says which limit was met.
    """
    provider = model.provider
    if not model.is_priced or (provider.most_images is None and provider.most_bytes is None):
        return
    images, of_images, size = 0, 0, len(request.system_prompt)
    for message in request.messages:
        for block in message.content:
            if isinstance(block, ImageContent):
                images += 1
                of_images += len(block.data)
            else:
                size += _chars(block)
    most = provider.most_images
    if most is not None and images > most:
        raise ContextOverflow(
            f"{model.name}: the question has too many images: {images:,}, and {provider.name} takes {most:,}"
        )
    most = provider.most_bytes
    if most is not None and size + of_images > most:
        what = f", {of_images:,} of them images" if of_images > size else ""
        raise ContextOverflow(
            f"{model.name}: the question is too large: {size + of_images:,} bytes{what}, and {provider.name} "
            f"takes {most:,}"
        )


def _chars(block: TextContent | ThinkingContent | ToolCall) -> int:
    if isinstance(block, TextContent):
        return len(block.text)
    if isinstance(block, ThinkingContent):
        return 0  # many are not sent back
    return len(dump_json(block.arguments) if block.unread is None else block.unread)
