"""JupyterLab: a person approves while a cell waits, stops a turn, restarts, and reads a saved notebook."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from playwright.async_api import Browser, expect

from tests.system.notebooks.jupyter_fixtures import OPEN, OPENING, SEND
from tests.system.notebooks.lab_fixtures import Lab, Notebook, lab_in
from tests.system.pages.conftest import anyio_backend, browser  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow
PICTURES = os.environ.get("SESSIONTREE_PICTURES")
"""Directory of the documentation's pictures; empty = none are kept."""


@pytest.fixture(scope="module")
async def lab(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:  # noqa: F811
    """One JupyterLab for all tests here."""
    async with lab_in(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


async def open_notebook(lab: Lab, browser: Browser, name: str, face: str, *more: str) -> Notebook:  # noqa: F811
    """Open a notebook whose first two cells opened a tree."""
    workspace = lab.place / name
    await asyncio.to_thread(workspace.mkdir)
    opening = OPENING.format(state=str(lab.place.parent / name))
    cells = [opening, OPEN[face].format(workspace=str(workspace)), *more]
    notebook = await lab.open(browser, f"{name}.ipynb", cells)
    for number in (0, 1):
        await notebook.run(number)
    return notebook


async def keep_picture(notebook: Notebook, name: str) -> None:
    """Keep a picture for the documentation."""
    if PICTURES is not None:
        await notebook.page.screenshot(path=Path(PICTURES) / f"{name}.png")


@pytest.mark.parametrize("face", [pytest.param("async", marks=pytest.mark.long), "sync"])
async def test_person_approves_while_a_cell_waits(lab: Lab, browser: Browser, face: str) -> None:  # noqa: F811
    """In the card that the cell shows by itself; a blocking cell holds the kernel's main thread meanwhile."""
    notebook = await open_notebook(lab, browser, f"approve-{face}", face, SEND[face].format("publish a.txt"))
    await notebook.begin(2)
    card = notebook.cell(2).locator("session-tree .card")
    await card.scroll_into_view_if_needed()
    await keep_picture(notebook, f"notebook-{face}")
    await card.get_by_role("button", name="Approve").click()
    await notebook.ended(2)
    await expect(notebook.output(2).last).to_contain_text("a.txt is published")
    await expect(card).to_have_count(0)
    await expect(notebook.cell(2).locator(".sessiontree-picture")).to_be_hidden()
    await notebook.close()


@pytest.mark.long
async def test_stop_interrupts_the_turn_and_a_restart_ends_all(lab: Lab, browser: Browser) -> None:  # noqa: F811
    """■ leaves the kernel and the tree; a restart leaves no process of the former kernel."""
    others = lab.kernels()  # of notebooks of other tests
    waits = SEND["async"].format("publish b.txt")
    notebook = await open_notebook(lab, browser, "stop", "async", waits, SEND["async"].format("there?"))
    await notebook.begin(2)
    await notebook.cell(2).locator("session-tree .card").wait_for()
    await notebook.press("interrupt")
    await expect(notebook.output(2).last).to_contain_text("CancelledError")
    await notebook.run(3)
    await expect(notebook.output(3).last).to_contain_text("heard there?")
    await expect(notebook.cell(2).locator("session-tree .card")).to_have_count(0)
    before = [each for each in lab.kernels() if each not in others]
    assert before
    await notebook.press("restart")
    await notebook.page.get_by_role("dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    _, alive = await asyncio.to_thread(psutil.wait_procs, before, 30)
    assert alive == [], [each.cmdline() for each in alive]
    await notebook.close()


@pytest.mark.long
async def test_saved_notebook_shows_a_picture(lab: Lab, browser: Browser) -> None:  # noqa: F811
    """After its kernel has ended: the tree as it was at the end of its cell, in escaped text alone."""
    asks = SEND["async"].format("publish <b>c</b>.txt")
    notebook = await open_notebook(lab, browser, "saved", "async", asks)
    await notebook.begin(2)
    card = notebook.cell(2).locator("session-tree .card")
    picture = notebook.cell(2).locator(".sessiontree-picture")
    await expect(picture).to_contain_text("<b>c</b>.txt")
    await card.get_by_role("button", name="Approve").click()
    await notebook.ended(2)
    await expect(picture).not_to_contain_text("asks for")
    await notebook.save()
    await lab.shut_down_kernels()
    await notebook.page.reload()
    await expect(picture).to_be_visible()
    await expect(picture.get_by_role("cell", name="main").first).to_be_visible()
    said = notebook.output(2).filter(has_text="widget").filter(visible=True)
    await expect(said).to_have_count(0)
    await keep_picture(notebook, "notebook-saved")
    await notebook.close()
