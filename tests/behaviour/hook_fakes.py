"""Hooks that do what a test says, and write down what they saw; they travel to hosts like tools."""

from __future__ import annotations

from dataclasses import replace

from sessiontree import CalledTool, EndedCall, Hook, HookContext, KeptResult
from sessiontree.contracts.tools.hooks import HookAnswer, OnError
from sessiontree.contracts.values.messages import ImageContent, TextContent
from tests.behaviour.signal_fixtures import Log


class Watching(Hook):
    """Writes down every call that is over."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> None:
        assert ended.is_error == ended.result.is_error
        self.log.append(f"{ended.tool} {ended.outcome} {ctx.session_id} {dict(ended.params)}")


class Timing(Hook):
    """Writes down how long every call ran, in milliseconds."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> None:
        self.log.append([ended.tool, ended.outcome, ended.duration_ms])


class Answering(Hook):
    """Answers each call of one tool with one thing, and writes down what it was shown."""

    def __init__(
        self, answer: HookAnswer, *, priority: int = 0, guards: bool = False, log: Log | None = None
    ) -> None:
        self.answer, self.priority, self.log = answer, priority, log
        self.name = f"{'guard' if guards else 'plain'}-{priority}"  # type: ignore[misc]
        self.on_error: OnError = "block" if guards else "run"

    async def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer:
        if self.log is not None:
            self.log.append(f"{self.name} {dict(call.params)}")
        return self.answer


class Emptying(Hook):
    """Leaves nothing of any result."""

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        return replace(result, content=())


class Masking(Hook):
    """Puts ``***`` in the place of a word, wherever it is in texts and details."""

    on_error: OnError = "block"

    def __init__(self, word: str) -> None:
        self.word = word

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        content = tuple(self._block(block) for block in result.content)
        details = result.details
        if isinstance(details, str):
            details = details.replace(self.word, "***")
        return replace(result, content=content, details=details)

    def _block(self, block: TextContent | ImageContent) -> TextContent | ImageContent:
        if isinstance(block, ImageContent):
            return block
        return TextContent(block.text.replace(self.word, "***"))
