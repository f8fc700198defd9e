"""Trees without ``await``: the same public classes, for scripts and for cells of a running notebook.

Floor 6, over ``api``. Calls cross from any thread to the one event loop of this process's sync trees;
questions to people are asked on the threads that wait.
Not here: what a call does; the async classes in ``api`` define that.
"""

from __future__ import annotations

from sessiontree.sync.bases import PendingReply
from sessiontree.sync.channels import QueueChannel, TerminalChannel
from sessiontree.sync.event_buffer import FactReader, ProgressReader
from sessiontree.sync.session import (
    Approvals,
    ClientCalls,
    OwnWorkspaces,
    PendingApproval,
    PendingQuestion,
    Questions,
    SessionHandle,
    WaitingCall,
)
from sessiontree.sync.tree import Runtime, SessionTree, StoredTrees

__all__ = [
    "Approvals",
    "ClientCalls",
    "FactReader",
    "OwnWorkspaces",
    "PendingApproval",
    "PendingQuestion",
    "PendingReply",
    "ProgressReader",
    "Questions",
    "QueueChannel",
    "Runtime",
    "SessionHandle",
    "SessionTree",
    "StoredTrees",
    "TerminalChannel",
    "WaitingCall",
]
