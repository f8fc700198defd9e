"""One session on its host: what the parts that work on its calls share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.runtime.runner.call_watch import CallWatch
from sessiontree.runtime.runner.calls.call_book import CallBook
from sessiontree.runtime.runner.input_queue import InputQueue
from sessiontree.runtime.runner.interceptors import Interceptor
from sessiontree.runtime.runner.session_tasks import SessionTasks
from sessiontree.session.state import SessionState


@dataclass(frozen=True, slots=True)
class HostedSession:
    """One session, and what its host has for it."""

    state: SessionState
    """Only the driver changes it."""
    dispatcher: Dispatcher
    watch: CallWatch
    """What watchers hear of its calls."""
    now_ms: Callable[[], int]
    """Returns the tree's time."""
    interceptors: Sequence[Interceptor]
    tasks: SessionTasks
    queue: InputQueue
    book: CallBook
