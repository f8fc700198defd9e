"""A tree in JupyterLab's chat: a person writes, allows a call by its button, and reads the answer."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Page, expect

from benchmarks.view import browsing
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.cli.provider_fixtures import replies
from tests.system.notebooks.lab_fixtures import CHECKOUT, lab_in
from tests.system.pages.test_pictures import PLACE, PLAIN, keep_picture

CHAT: Final = CHECKOUT / ".venv-chat" / "bin" / "jupyter-lab"
PERSONA: Final = CHECKOUT / "docs" / "examples" / "tree_persona.py"
LOOK: Final = {"viewport": {"width": 1000, "height": 480}, "color_scheme": "light", **PLAIN}
ASKED: Final = "Publish the release notes."
READY: Final = "The notes name all three changes. Publishing them needs your approval."
ANSWER: Final = "The notes are published: published.md has all three changes."
COMMAND: Final = "cp notes.md published.md && echo once >> ran.txt"
CONFIG: Final = """
model = "openai:gpt-5"

[agents.default.config]
exec_hosts = ["host"]
"""


def script() -> FakeProvider:
    """Return what the tree asks: it calls for a command above its sandbox, then answers."""
    call = {"name": "exec", "arguments": json.dumps({"command": COMMAND, "elevated": True})}
    return FakeProvider(replies({"text": READY, "calls": [call]}, {"text": ANSWER}))


async def talk(page: Page, work: Path, picture: Path) -> None:
    """Send a message, keep a picture of the request, allow it, and see that the command ran once."""
    field = page.locator(".jp-chat-input-textfield textarea").first
    await expect(page.locator(".jp-jai-personaControls-persona")).to_contain_text("sessiontree")
    await field.fill(ASKED)
    await field.press("Enter")
    allow = page.get_by_role("button", name="Allow once")
    await expect(allow).to_be_visible()
    await expect(page.get_by_role("button", name="Reject")).to_be_visible()
    await expect(page.get_by_text(READY)).to_be_visible()
    assert not (work / "ran.txt").exists(), "it ran before the approval"
    await keep_picture(page, picture)
    await allow.click()
    await expect(page.get_by_text(ANSWER)).to_be_visible()
    await expect(allow).not_to_be_visible()
    assert (work / "ran.txt").read_text() == "once\n"


async def try_out(place: Path, picture: Path) -> None:
    """Start a provider and JupyterLab on loopback, and talk to a tree there."""
    config = place / "owner.toml"
    config.write_text(CONFIG)
    config.chmod(0o600)
    agent = (
        *(sys.executable, "-m", "sessiontree.cli", "acp", "--backend", "local"),
        *("--config", str(config), "--state-dir", str(place / "state")),
    )
    async with script() as provider:
        variables = {
            "TREE_COMMAND": shlex.join(agent),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": provider.url("openai"),
        }
        async with lab_in(place / "lab", CHAT, **variables) as lab, browsing() as browser:
            personas = lab.place / ".jupyter" / "personas"
            personas.mkdir(parents=True)
            shutil.copy(PERSONA, personas)
            (lab.place / "notes.md").write_text("- faster\n- smaller\n- safer\n")
            (lab.place / "release.chat").write_text("{}")
            await talk(await lab.show(browser, "release.chat", **LOOK), lab.place, picture)


def main() -> int:
    """Return 0 if the chat showed the request and the answer."""
    if not CHAT.exists():
        print(f"{CHAT} is missing: make setup-chat installs it", file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory() as place:
        picture = Path(os.environ.get(PLACE, place)) / "jupyter-chat-light.png"
        asyncio.run(try_out(Path(place), picture))
    print("JupyterLab's chat showed the request with its buttons, and the tree's answer")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
