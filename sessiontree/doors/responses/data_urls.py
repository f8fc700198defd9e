"""Images that a client sends inside its request, as data URLs."""

from __future__ import annotations

import re
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.messages import ImageContent

_FORM: Final = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})")


def parse_image(url: str) -> ImageContent:
    """Return the image of a data URL; nothing is fetched.

    Raises:
        ConfigError: it is another URL, or no image in base64.
    """
    form = _FORM.fullmatch(url)
    if form is None or len(form[2]) % 4:
        raise ConfigError("an image is sent as a data URL: data:image/png;base64,…; nothing is fetched")
    return ImageContent(form[2], form[1])
