"""The channel protocol: how the runtime sends messages and approval requests to a person."""

from __future__ import annotations

from typing import Protocol

from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest


class HumanChannel(Protocol):
    """A person, or a program in place of one.

    Optional attribute ``tools``: a sequence of tools, such as one that links a device. They join the tree's
    own tools before any policy applies, and are removed if the tree is resumed without the channel. Optional
    attribute ``name``: the channel's name for plugins.

    Optional attribute ``owners``, for a channel with several users: the ids of those who own its trees. The
    list at the creation of a tree applies for the tree's whole life. Messages and answers then have a sender;
    answers of other people are dropped, and the request is asked again.

    Optional attribute ``system_tier``: whether System calls of the trees whose Main has this channel need an
    approval (``ask``) or are refused (``deny``), regardless of their agents; ``allow`` leaves it to the
    agents. The value at the creation of a tree applies.

    Optional attribute ``message_policy``, a MessagePolicy: which Branches of those trees may send messages,
    how often, and how long one may be. The value at the creation of a tree applies.

    Optional function ``ask_question(question)``: shows a QuestionRequest and returns a QuestionReply; None =
    it is not answered here. It is cancelled as :meth:`ask` is. Without it, or with a false attribute
    ``asks``, questions go to the next channel above, and wait in the tree.

    Optional attribute ``surface``: where its people answer, for the journal; ``program`` if it is missing.

    Optional function ``show(tool, display)``: receives the display line that each tool of the channel's
    session gave with its result. It may be async; the next line waits until it returns.

    Optional function ``show_below(session, tool, display)``: receives those lines of all sessions below, each
    with the session's path and with its invisible characters made visible. Within one turn of the channel's
    session at most 20 lines come; at the turn's end the number of others follows, as a line of no tool.
    """

    async def send(self, text: str) -> None:
        """Deliver the ``text`` of a message."""
        ...

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and return the answer; None = it is not answered here.

        Contract: the call is cancelled when the request is decided elsewhere; it must then leave no question
        on the screen.
        """
        ...
