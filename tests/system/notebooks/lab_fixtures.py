"""JupyterLab with a notebook of its own, as a person has it in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.system.notebooks.jupyter_fixtures import KERNEL, write_kernel

CHECKOUT = Path(__file__).parents[3]
LAB = CHECKOUT / ".venv-lab" / "bin" / "jupyter-lab"
PATIENCE_S = 60.0
END_S = 15.0
"""How long JupyterLab may take to end."""
expect.set_options(timeout=PATIENCE_S * 1000)
COUNTED = re.compile(r"^\[\d+\]:$")
"""The prompt of a cell that has ended."""
WIDE = {"width": 1400, "height": 1000}
QUIET = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
ADAPTIVE = {"adaptive-theme": True}
"""Light or dark as the browser prefers."""


def check_lab() -> None:
    """Fail where JupyterLab is missing."""
    if not LAB.exists():
        pytest.fail("no JupyterLab: `make setup-lab` installs it, and `make test` does so, too")


class Notebook:
    """A notebook that is open in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def cell(self, number: int) -> Locator:
        """A cell of code, from 0 on."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def output(self, number: int) -> Locator:
        """What a cell shows."""
        return self.cell(number).locator(".jp-OutputArea-output")

    async def begin(self, number: int) -> None:
        """Run a cell, and do not wait for its end.

        The page drops an order that comes before it has found the kernel: it is given again until it counts.
        """
        prompt = self.cell(number).locator(".jp-InputPrompt")
        before = await prompt.inner_text()
        while await prompt.inner_text() == before:
            await prompt.click()
            await self.press("run")
            await self.page.wait_for_timeout(200)

    async def run(self, number: int) -> None:
        """Run a cell to its end."""
        await self.begin(number)
        await self.ended(number)

    async def ended(self, number: int) -> None:
        """Wait for the end of a cell."""
        await expect(self.cell(number).locator(".jp-InputPrompt")).to_have_text(COUNTED)

    async def press(self, name: str) -> None:
        """Press a button of the toolbar: ``run``, ``save``, ``interrupt`` or ``restart``."""
        await self.page.locator(f".jp-NotebookPanel-toolbar [data-jp-item-name={name}] jp-button").click()

    async def close(self) -> None:
        """Close the page."""
        await self.page.context.close()

    async def save(self) -> None:
        """Save the file."""
        async with self.page.expect_response(
            lambda told: "/api/contents/" in told.url and told.request.method == "PUT"
        ):
            await self.press("save")


class Lab:
    """A running JupyterLab."""

    def __init__(self, place: Path, origin: str, token: str, process: Process) -> None:
        self.place = place
        self._origin = origin
        self._token = token
        self._process = process

    def kernels(self) -> list[psutil.Process]:
        """Return the processes of all kernels, and of what they began."""
        found: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        return found

    async def open(self, browser: Browser, name: str, cells: Sequence[str], **look: Any) -> Notebook:
        """Write a notebook of some cells, and open it in a page with options of its context."""
        kernel = {"name": KERNEL, "display_name": KERNEL, "language": "python"}
        content = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
            "cells": [
                {
                    "cell_type": "code", "id": f"cell{number}", "metadata": {}, "outputs": [],
                    "execution_count": None, "source": source.strip("\n"),
                }
                for number, source in enumerate(cells)
            ],
        }  # fmt: skip
        (self.place / name).write_text(json.dumps(content), "utf-8")
        notebook = Notebook(await self.show(browser, name, **look))
        await notebook.cell(0).wait_for()
        await self.is_ready()
        return notebook

    async def show(self, browser: Browser, name: str, **look: Any) -> Page:
        """Open a file in a page with options of its context."""
        context = await browser.new_context(**{"viewport": WIDE, **look})
        context.set_default_timeout(PATIENCE_S * 1000)
        page = await context.new_page()
        await page.goto(f"{self._origin}/doc/tree/{name}?token={self._token}")
        return page

    async def is_ready(self) -> None:
        """Wait until a page is connected with a kernel that can run cells."""
        async with self._client() as client, asyncio.timeout(PATIENCE_S):
            while True:
                kernels = (await client.get("/api/kernels")).json()
                if any(each["connections"] and each["execution_state"] == "idle" for each in kernels):
                    return
                await asyncio.sleep(0.1)

    async def shut_down_kernels(self) -> None:
        """End all kernels, as a person does it who leaves."""
        async with self._client() as client:
            for session in (await client.get("/api/sessions")).json():
                (await client.delete(f"/api/sessions/{session['id']}")).raise_for_status()

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"token {self._token}"}
        return httpx.AsyncClient(base_url=self._origin, headers=headers, timeout=PATIENCE_S)


@asynccontextmanager
async def lab_in(place: Path, program: Path = LAB, **variables: str) -> AsyncIterator[Lab]:
    """Start JupyterLab in a directory; its kernels are of this environment.

    Args:
        place: The directory.
        program: The JupyterLab to start.
        variables: More of its environment.
    """
    if program == LAB:
        check_lab()
    home, work = place / "home", place / "work"
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    for each in (work, settings):
        each.mkdir(parents=True)
    write_kernel(home / "share" / "kernels", sys.executable)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(QUIET), "utf-8")
    (settings / "themes.jupyterlab-settings").write_text(json.dumps(ADAPTIVE), "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    environment = {
        **os.environ,
        **variables,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "run"),
        "JUPYTER_PATH": f"{home / 'share'}{os.pathsep}{Path(sys.prefix) / 'share' / 'jupyter'}",
    }
    options = {
        "ServerApp.port": port, "ServerApp.port_retries": 0, "IdentityProvider.token": token,
        "ServerApp.root_dir": work, "ServerApp.open_browser": False, "ServerApp.allow_root": True,
        "LabApp.user_settings_dir": home / "settings", "LabApp.extension_manager": "readonly",
        "LabApp.news_url": "", "LabServerApp.blocked_extensions_uris": "",
    }  # fmt: skip
    with (place / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, *(f"--{name}={value}" for name, value in options.items()),
            env=environment, cwd=work, stdout=log, stderr=log,
        )  # fmt: skip
    lab = Lab(work, f"http://127.0.0.1:{port}", token, process)
    try:
        await _until_up(f"http://127.0.0.1:{port}/api", process, place / "log")
        yield lab
    finally:
        left = lab.kernels()
        process.terminate()
        with suppress(TimeoutError):  # it waits for kernels that are about to start
            await asyncio.wait_for(process.wait(), END_S)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _until_up(address: str, process: Process, log: Path) -> None:
    """Wait until a server answers."""
    async with httpx.AsyncClient() as client, asyncio.timeout(PATIENCE_S):
        while True:
            assert process.returncode is None, f"JupyterLab has ended; see {log}"
            try:
                await client.get(address)
            except httpx.TransportError:
                await asyncio.sleep(0.1)
            else:
                return
