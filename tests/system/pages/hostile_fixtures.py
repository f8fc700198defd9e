"""A tree of a journal in which every text that somebody else wrote is an attack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.view_tree import BEGAN_MS, config_of_book, spec_of, write_tree
from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts import tree_facts
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from tests.unit.view.test_markdown import HOSTILE

HOSTILE_TREE: Final = "t00000000000000bb"
ATTACKS: Final = (
    *HOSTILE,
    "</script><script>alert(1)</script>",
    "\u2028</title></pre></template><img src=x onerror=alert(1)>",
    '"><a href="javascript:alert(1)" id=panel class="primary">Approve</a>',
    "' onfocus='alert(1)' autofocus='",
    "{{constructor.constructor('alert(1)')()}}${alert(1)}",
    "\x1b]8;;https://a.example\x07x\x1b]8;;\x07\r\n\x00",
)
_PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def _facts(path: str, text: str, at_ms: int) -> Iterator[tuple[str, object]]:
    """Yield the facts of a session of which one attack is every text."""
    images = (ImageContent(_PIXEL, "image/png"), ImageContent(text, text), ImageContent("x", "image/svg+xml"))
    told = UserMessage((TextContent(text), *images), at_ms, "parent")
    edit: dict[str, JsonValue] = {
        "path": text,
        "old_text": text,
        "new_text": text,
        "patch": text,
        "content": f"{text}\n{text}",
        text: [text, {text: text}],
    }
    calls = tuple(ToolCall(text, name, edit) for name in ("edit", "write", "apply_patch", text))
    reply = AssistantMessage(
        (ThinkingContent(text), TextContent(text), *calls), "toolUse", Usage(1, 1), at_ms
    )
    bad = ToolResultMessage(
        text, text, (TextContent(text), *images), {"display": text, text: text}, is_error=True
    )
    call = CheckedCall("1.0", text, edit, text, 2, repeatable=False)
    yield path, said.Opened(text, (text,), text)
    yield path, said.MessageReceived(text, told, steer=True, wakes=True)
    yield path, said.TurnStarted(1, 1, fresh_run=True)
    yield path, said.TurnReplied(1, reply)
    yield path, said.ArgumentsRejected("1.1", text, 1, text, text, text, final=False)
    yield path, said.CallResolved("1.0", "error", bad)
    yield path, said.CallParked("1.2", bad)
    yield path, said.ApprovalWanted(f"r{at_ms}", call, at_ms)
    yield path, said.ApprovalSettled("1.3", f"r{at_ms}", text, text, text)
    yield path, said.HookFailed(text, text, text, text)
    yield path, said.ToolGivenUp(text, 3, text, text)
    yield path, said.ResultRejected(1, text, text)
    yield path, said.ReplyCut(2, text)
    yield path, said.TurnFailed(2, text, text)
    yield path, said.ContextCompacted(2, 1, (), told, Usage(1, 1), text)
    yield path, said.Interrupted(text, text)
    yield path, said.RunFinished(text, (text,), text, text, has_result=True)
    yield path, said.Stopping(text, text)
    who = Principal(text, text, text, text, is_owner=False)
    yield (
        "",
        tree_facts.ApprovalRequested(
            ApprovalQuestion(f"q{at_ms}", path, call, (who,)), at_ms + 10**12, at_ms
        ),
    )


def _tree() -> Iterator[tuple[str, object]]:
    everything = "\n".join(ATTACKS)
    for number, text in enumerate(("book", *ATTACKS, everything)):
        path = f"main/w{number}" if number else "main"
        at_ms = BEGAN_MS + number
        spec = replace(spec_of(path), label=text, task=text, agent=text, tools=(text,), approver=text)
        yield "", tree_facts.SessionSpawned(spec, "main", 1, at_ms)
        yield from _facts(path, text, at_ms)
        if number % 3 == 2:
            result = SessionResult(SessionStatus.FAILED, text, text)
            yield "", tree_facts.SessionEnded(path, SessionStatus.FAILED, result, at_ms, forced=False)


async def record_hostile_tree(state_dir: Path) -> None:
    """Write the tree."""
    everything = "\n".join(ATTACKS)
    config = replace(
        config_of_book(), tree_id=HOSTILE_TREE, purpose=everything, workspace=everything, model=everything
    )
    await write_tree(state_dir, config, _tree())
