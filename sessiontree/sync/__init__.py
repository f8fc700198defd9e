"""Trees without ``await``: the same public surface for scripts and for the cells of a running notebook.

Room: over ``api``; crosses from any thread to the one loop of this process's sync trees, and asks people on
the threads that wait. Not here: what any of the calls do; that is the async classes' matter.
"""

from __future__ import annotations

from sessiontree.sync.approvals import Approvals, PendingApproval
from sessiontree.sync.channels import QueueChannel, TerminalChannel
from sessiontree.sync.client_calls import ClientCalls, WaitingCall
from sessiontree.sync.event_buffer import ProgressReader
from sessiontree.sync.handle import PendingReply, SessionHandle
from sessiontree.sync.runtime import Runtime
from sessiontree.sync.tree import SessionTree

__all__ = [
    "Approvals",
    "ClientCalls",
    "PendingApproval",
    "PendingReply",
    "ProgressReader",
    "QueueChannel",
    "Runtime",
    "SessionHandle",
    "SessionTree",
    "TerminalChannel",
    "WaitingCall",
]
