"""Markdown of models and people as a fragment that a page may insert.

The source is hostile. The renderer passes no HTML through, and what it wrote is cleaned again, to a few tags
without any attribute: nothing in a fragment can run, load, link or style. A link is shown as its words and
its address, as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from sessiontree.channels.safe_text import make_visible

MAX_CHARS: Final = 40_000
"""Longest source that is rendered; a longer text is shown as it is."""
TAGS: Final = frozenset(
    (
        *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
    )
)


class _Renderer(RendererHTML):
    """Writes links and images as text."""

    def link_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        env.setdefault("links", []).append(str(tokens[index].attrGet("href") or ""))
        return ""

    def link_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return f" ({nh3.clean_text(env['links'].pop())})"

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[index]
        return nh3.clean_text(f"{token.content} ({token.attrGet('src') or ''})")


_PARSER: Final = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable(
    ["table", "strikethrough"]
)


def render_markdown(text: str) -> str | None:
    """Return a text as a cleaned HTML fragment; None if it is too long to be rendered.

    The tags are those of :data:`TAGS`, and none has an attribute. The text was made visible line by line.
    """
    if len(text) > MAX_CHARS:
        return None
    shown = make_lines_visible(text)
    env: dict[str, Any] = {}
    # Cleaned although the renderer passes no HTML: an error in one of the two is then not enough for a script
    # to run.
    return nh3.clean(_PARSER.render(shown, env), tags=set(TAGS), attributes={}, link_rel=None)


def make_lines_visible(text: str) -> str:
    """Return a text whose lines and tabs stay, and in which nothing else can deceive a reader."""
    return "\n".join("\t".join(map(make_visible, line.split("\t"))) for line in text.split("\n"))
