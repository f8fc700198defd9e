"""The terminal as a channel: it prints messages, and asks for requests and questions to be answered."""

from __future__ import annotations

import asyncio
import threading
from typing import TextIO

from sessiontree.channels.question_text import format_heading, format_item, format_prompt, parse_line
from sessiontree.channels.safe_text import format_approval, format_question, make_visible, refuse_always
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import QuestionAnswer, QuestionReply, QuestionRequest

_ANSWERS = {
    "y": ApprovalAnswer(approve=True),
    "yes": ApprovalAnswer(approve=True),
    "a": ApprovalAnswer(approve=True, always=True),
    "always": ApprovalAnswer(approve=True, always=True),
    "n": ApprovalAnswer(approve=False, reason="said no at the terminal"),
    "no": ApprovalAnswer(approve=False, reason="said no at the terminal"),
}
LATER = ("l", "later")
"""Words that leave a request open."""


class TerminalChannel:
    """Asks one request or question at a time; an end of input means no, and leaves a question open.

    Args:
        reads: Where answers come from.
        writes: Where messages and questions go.
    """

    surface = "terminal"
    """Where its person answers."""

    def __init__(self, reads: TextIO, writes: TextIO) -> None:
        self._reads = reads
        self._writes = writes
        # Race: two questions at once would share one keyboard, and a key could approve the wrong one.
        self._turn = asyncio.Lock()
        self._line: asyncio.Future[str] | None = None
        self._withdrawn = False

    async def send(self, text: str) -> None:
        """Print the ``text`` of a message line by line, with its invisible characters made visible."""
        for line in text.splitlines() or [""]:
            self._writes.write(make_visible(line) + "\n")
        self._writes.flush()

    async def show(self, tool: str, display: str) -> None:
        """Print the display line of a tool of the session."""
        await self.send(f"({tool}: {display})")

    async def show_below(self, session: str, tool: str, display: str) -> None:
        """Print the display line of a tool of a session below."""
        await self.send(f"({session}, {tool}: {display})" if tool else f"({session}: {display})")

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and wait for a key; anything but a known answer asks again. None = it stays open.

        A line typed for a withdrawn question never answers the next one.
        """
        async with self._turn:
            # On a line of its own: the program may have shown the beginning of a reply.
            self._writes.write("\n" + format_approval(request) + "\n")
            while True:
                line = await self._ask(format_question(request))
                if line == "":
                    self._writes.write("\n")
                    return ApprovalAnswer(approve=False, reason="the terminal's input ended")
                word = line.strip().lower()
                if word in LATER:
                    await self.send(f"(it waits: sessiontree approvals --approve {request.request_id})")
                    return None
                answer = _ANSWERS.get(word)
                problem = refuse_always(request, answer)
                if problem:
                    self._writes.write(problem + "\n")
                elif answer is not None:
                    return answer

    async def ask_question(self, question: QuestionRequest) -> QuestionReply | None:
        """Show the questions one after the other and wait for numbers or texts. None = they stay open."""
        async with self._turn:
            self._writes.write("\n" + format_heading(question) + "\n")
            answers: list[QuestionAnswer] = []
            for item in question.items:
                self._writes.write(format_item(item) + "\n")
                answer: QuestionAnswer | str = ""
                while not isinstance(answer, QuestionAnswer):
                    if answer:
                        self._writes.write(answer + "\n")
                    line = await self._ask(format_prompt(item))
                    if line == "" or line.strip().lower() in LATER:
                        await self.send(f"(it waits: sessiontree approvals --answer {question.question_id})")
                        return None
                    answer = parse_line(item, line)
                answers.append(answer)
            return QuestionReply(tuple(answers))

    async def _ask(self, prompt: str) -> str:
        """Show a prompt and return the line typed for it; empty at the end of input."""
        while True:
            self._writes.write(prompt)
            self._writes.flush()
            try:
                line = await self._read_line()
            except asyncio.CancelledError:
                self._withdrawn = True
                self._writes.write("\n(the question was withdrawn)\n")
                self._writes.flush()
                raise
            if not self._withdrawn or line == "":
                return line
            self._withdrawn = False
            self._writes.write("(that line was for the withdrawn question)\n")

    async def _read_line(self) -> str:
        """Read in a daemon thread, so that an unanswered question does not keep the process alive.

        If the question is withdrawn, the thread continues to wait, and its line is dropped later.
        """
        if self._line is None or self._line.done():
            loop = asyncio.get_running_loop()
            line: asyncio.Future[str] = loop.create_future()
            self._line = line

            def read() -> None:
                text = self._reads.readline()
                # The program may have ended while the thread waited for a line.
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, line, text)

            threading.Thread(target=read, name="terminal", daemon=True).start()
        # A withdrawn question must not cancel the future: the thread still reads, and the next question has
        # to know.
        return await asyncio.shield(self._line)


def _settle(line: asyncio.Future[str], text: str) -> None:
    if not line.done():
        line.set_result(text)
