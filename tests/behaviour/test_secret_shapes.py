"""What looks like a secret is nowhere, though nobody named it: every shape, by every way out."""

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest

from sessiontree import (
    Artifact,
    ExecutionError,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    Redact,
    ToolContext,
    ToolResult,
    script_call,
    tool,
)
from sessiontree.contracts.reports.events import ToolExecutionEnd
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import PATIENCE_S, records
from tests.behaviour.tree_fixtures import Opener
from tests.unit.hooks.secret_fixtures import SAMPLES

WAYS = ("output", "display", "details", "artifact", "error", "crash", "progress")
LETTER = "\n".join(form.format(secret) for form, secret in SAMPLES.values())
"""One of each shape, as it would stand in a text."""


@tool(tier=PermissionTier.WORKSPACE)
async def leak(way: str, ctx: ToolContext) -> ToolResult:
    """Let everything out in one way."""
    if way == "error":
        raise ExecutionError(f"the server said {LETTER}")
    if way == "crash":
        raise ValueError(LETTER)
    if way == "progress":
        ctx.update({"read": LETTER})
    return ToolResult(
        {"line": LETTER} if way == "output" else "x",
        display=LETTER if way == "display" else "x",
        details={"seen": [LETTER]} if way == "details" else None,
        artifacts=(Artifact("blob", "x", data=LETTER),) if way == "artifact" else (),
    )


def found_in(text: str) -> list[str]:
    """Return the shapes whose sample is in a text, as it is or as JSON writes it."""
    secrets = {name: secret for name, (_, secret) in SAMPLES.items()}
    return [name for name, secret in secrets.items() if secret in text or secret.replace("\n", "\\n") in text]


def model(request: ModelRequest) -> Answer:
    """Make one call for each way; the final message names every shape that was shown."""
    if request.turn <= len(WAYS):
        return script_call("leak", way=WAYS[request.turn - 1])
    shown = request.system_prompt + "".join(message.to_json() for message in request.messages)
    return f"shown: {', '.join(found_in(shown))}"


def test_every_sample_is_noticed() -> None:
    """The look for secrets finds all of them where none was taken out."""
    assert found_in(LETTER) == list(SAMPLES)
    assert len(SAMPLES) >= 30


@pytest.mark.covers("Z5", "REL-P48", "REL-L68")
async def test_no_shape_gets_anywhere(open_tree: Opener, caplog: pytest.LogCaptureFixture) -> None:
    """REL-L68: not to the model, the journal, watchers, logs, errors of the program's calls, or ``repr``."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    async with open_tree(FunctionModel(model), tools=[leak], hooks=[Redact()]) as tree:
        reader = tree.progress()
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "shown: "
            for way in WAYS:
                try:
                    seen.append(repr(await tree.main.call("leak", {"way": way})))
                except ExecutionError as error:
                    seen.append("".join(traceback.format_exception(error)) + repr(error))
            ends = 0
            while ends < 2 * len(WAYS):
                event = (await reader.next()).event
                ends += isinstance(event, ToolExecutionEnd)
                seen.append(repr(event))
        reader.close()
        seen += [record.text for record in await records(tree)]
        seen += [repr(each) for each in (tree, tree.main, tree.main.history(), tree.main.status(), Redact())]
    seen.append(caplog.text)
    assert sum('"kind":"call_resolved"' in text for text in seen) == 2 * len(WAYS)
    assert [(found_in(text), text[:200]) for text in seen if found_in(text)] == []
