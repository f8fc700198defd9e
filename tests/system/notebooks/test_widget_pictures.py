"""The pictures of the widget in the README: `make screenshots` writes them, this test makes others."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, expect

from tests.system.notebooks.lab_fixtures import lab_in
from tests.system.pages.conftest import anyio_backend, browser  # noqa: F401 - fixtures
from tests.system.pages.test_pictures import PLACE, PLAIN, keep_picture

pytestmark = [pytest.mark.slow, pytest.mark.long]
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 600, "height": 900}, "color_scheme": "light"},
    "narrow-dark": {"viewport": {"width": 600, "height": 900}, "color_scheme": "dark"},
}
MODULE: Final = '''
"""A model that stands in for an LLM, and a tool that needs an approval."""

from sessiontree import AsyncFunctionModel, PermissionTier, SessionKind, script_call, tool
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, Usage

SOURCES = {
    "Rotterdam": ["Delta Fund accounts", "water board minutes", "insurers' reports"],
    "Venice": ["MOSE contracts", "court of auditors", "maintenance budget"],
}


@tool(tier=PermissionTier.ELEVATED)
def publish(report: str, audience: str) -> str:
    """Publish a report.

    Args:
        report: The file.
        audience: Who may read it.
    """
    return f"{report} is published"


async def answer(request):
    if request.kind is SessionKind.MAIN and request.turn == 1:
        return script_call("publish", report="report.md", audience="everybody")
    size = 2_400 + 977 * (len(request.messages[0].text) % 7)
    used = Usage(size, size // 9, cost_usd=size * 4e-6, turns=1)
    return AssistantMessage((TextContent("The state pays 52 %."),), "stop", used)


model = AsyncFunctionModel(answer, name="claude")
'''
CELLS: Final = (
    """
from research import SOURCES, model, publish
from sessiontree import SessionTree

purpose = "Who pays for the dikes?"
tree = await SessionTree(".", model=model, tools=[publish], purpose=purpose, backend="local").start()
""",
    """
for city, sources in SOURCES.items():
    branch = await tree.main.spawn("branch", f"How does {city} pay?", label=city)
    await branch.map("worker", sources, labels=sources)
    await branch.result()
""",
    'await tree.main.send("Publish the report.")',
)


async def test_pictures_of_the_widget(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    """Two widths, each in light and dark: the cell that waits shows the tree and its request."""
    place = Path(os.environ.get(PLACE, tmp_path))
    async with lab_in(tmp_path / "lab") as lab:
        await asyncio.to_thread((lab.place / "research.py").write_text, MODULE, "utf-8")
        for name, look in LOOKS.items():
            notebook = await lab.open(browser, f"research-{name}.ipynb", CELLS, **look, **PLAIN)
            for number in (0, 1):
                await notebook.run(number)
            await notebook.begin(2)
            card = notebook.cell(2).locator("session-tree .card")
            await expect(card).to_contain_text("everybody")
            await notebook.cell(0).evaluate("(cell) => cell.scrollIntoView()")
            await keep_picture(notebook.page, place / f"widget-{name}.png")
            await notebook.press("interrupt")
            await notebook.close()
            await lab.shut_down_kernels()
