"""How the values of the package show themselves at the end of a cell: widget, static HTML, plain text.

A front end takes the best form that it knows. The HTML is what a saved notebook shows: escaped text. Nothing
here needs an extra; without one the pictures are left, and the widget is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from sessiontree.api.runtime.runtime import get_ipython_shell
from sessiontree.contracts.errors import ConfigError, SessionTreeError, describe_error
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.values.jsonable import dump_readable, to_json_value
from sessiontree.contracts.values.messages import Usage
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.notebook.cell_html import (
    MAX_ROWS,
    block_text,
    escape_cell_text,
    render_card,
    render_html_table,
    render_picture_html,
    render_prose,
    render_text_table,
    render_tree_html,
    render_tree_text,
    shorten,
)
from sessiontree.notebook.cell_interrupts import INTERRUPTS
from sessiontree.notebook.tree_look import LOOK_S, look
from sessiontree.notebook.view_thread import VIEWS
from sessiontree.tree.report import ReceiptLine
from sessiontree.version import explain_installation

Bundle = dict[str, Any]
SETTLE_S: Final = 0.3
"""How long after the end of a cell its facts may take to reach what is looked at."""
WIDGET_MIME: Final = "application/vnd.jupyter.widget-view+json"


def show_values(shell: Any) -> None:
    """Have the values of the package show themselves in a shell, and ■ interrupt turns; once is enough."""
    formatters = getattr(shell, "display_formatter", None)
    if formatters is None or getattr(shell, "_sessiontree_shows", False):
        return
    # The mark is on the shell and not here: `%load_ext` in a second shell of the same process must work.
    shell._sessiontree_shows = True  # noqa: SLF001 - the mark is this module's
    for module, name, shows in _TYPES:
        formatters.mimebundle_formatter.for_type_by_name(module, name, _adapt(shows))
    for kind in (tuple, list):
        formatters.mimebundle_formatter.for_type(kind, _adapt(render_sequence))
    INTERRUPTS.watch(shell)
    RUNNING.watch(shell)


def _adapt(show: Callable[[Any], Bundle | None]) -> Callable[..., Bundle | None]:
    def show_value(value: Any, include: object = None, exclude: object = None) -> Bundle | None:
        return show(value)

    return show_value


def render_tree(state_dir: Path, tree_id: str, session: str = "main") -> Bundle:
    """Return a tree as a widget, or as HTML and text where none can be made.

    A file keeps no widget. In front of one, HTML and text are displayed by themselves, and brought up to date
    at the end of the cell.

    Args:
        state_dir: Its state directory.
        tree_id: The tree.
        session: The session that the pictures begin at.
    """
    try:
        snapshot = look(state_dir, tree_id)["snapshot"]
    except SessionTreeError as error:
        return {"text/plain": f"<tree {tree_id}: {describe_error(error)}>"}
    bundle = {
        "text/plain": render_tree_text(snapshot, session),
        "text/html": render_tree_html(snapshot, session),
    }
    if not is_in_kernel():
        return bundle
    if find_spec("anywidget") is not None:
        show_values(get_ipython_shell())
        RUNNING.begin_picture(state_dir, tree_id, session)
        from sessiontree.notebook.widget import get_widget

        model = {"version_major": 2, "version_minor": 0, "model_id": get_widget(state_dir, tree_id).model_id}
        return {WIDGET_MIME: model, "text/plain": f"<tree {tree_id}>"}
    if snapshot["tree"]["is_live"] and find_spec("starlette") is not None:
        return _add_page(bundle, page_address(state_dir, tree_id))
    return bundle


def page_address(state_dir: Path, tree_id: str) -> str:
    """Return the address of a tree's page on this machine, which lets one browser in, once.

    Raises:
        ConfigError: the extra ``serve`` is not installed, or no port can be used.
    """
    if find_spec("starlette") is None or find_spec("sse_starlette") is None or find_spec("uvicorn") is None:
        raise ConfigError(f"pages need the extra serve: {explain_installation('serve')}")
    return VIEWS.submit(lambda: VIEWS.open_page(state_dir, tree_id)).result(LOOK_S)


def _add_page(bundle: Bundle, where: str) -> Bundle:
    """Add the address of a tree's page, which lets one browser in, once, as long as the kernel lives."""
    return {
        "text/plain": f"{bundle['text/plain']}\nopen {where}",
        "text/html": f"{bundle['text/html']}<p>open <code>{escape_cell_text(where)}</code></p>",
    }


def is_in_kernel() -> bool:
    """Whether this process is a notebook's kernel, which has a front end."""
    shell = get_ipython_shell()
    return getattr(shell, "kernel", None) is not None


class RunningCell:
    """The cell that runs; what a tree shows by itself belongs there, and not to the cell that opened it."""

    def __init__(self) -> None:
        self._parent: Any = None
        self._pictures: list[tuple[str, Path, str, str]] = []
        """Of the cell that runs: display id, state directory, tree and session."""

    def watch(self, shell: Any) -> None:
        """Keep the request of each cell, from the one that runs on."""
        self._shell = shell
        self._note(None)
        shell.events.register("pre_run_cell", self._note)
        shell.events.register("post_run_cell", self._end_cell)

    def _note(self, info: object) -> None:
        self._parent = getattr(self._shell, "get_parent", dict)()

    def publish(self, bundle: Bundle, parent: Any = None, **how: Any) -> None:
        """Display something; on any thread and in any task.

        Args:
            bundle: What is displayed.
            parent: The request of the cell where; None = the cell that runs.
            how: More arguments of the shell's publisher.
        """
        publisher = self._shell.display_pub

        def show() -> None:
            if hasattr(publisher, "set_thread_parent"):
                publisher.set_thread_parent(parent or self._parent)
            publisher.publish(bundle, **how)

        # The publisher keeps its cell in a context variable; in a context of its own the change reaches
        # nobody else.
        Context().run(show)

    def begin_picture(self, state_dir: Path, tree_id: str, session: str) -> None:
        """Display a tree as a saved notebook shows it; as it is then, and at the end of the cell."""
        shown = self.begin(_render_picture(look(state_dir, tree_id)["snapshot"], session))
        self._pictures.append((shown, state_dir, tree_id, session))

    def _end_cell(self, result: object) -> None:
        pictures, self._pictures = self._pictures, []
        # Kept now, because the next cell may begin before the picture is drawn, and it belongs to this one.
        parent = self._parent
        for picture in pictures:
            VIEWS.submit(partial(self._renew, *picture, parent))

    async def _renew(self, shown: str, state_dir: Path, tree_id: str, session: str, parent: Any) -> None:
        with suppress(SessionTreeError):
            async with VIEWS.get_trees(state_dir).look_at(tree_id) as tree:
                # The last facts of the cell are read from the journal, which may be a moment behind.
                await asyncio.sleep(SETTLE_S)
                bundle = _render_picture(tree.feed.snapshot(), session)
            self.publish(bundle, parent, transient={"display_id": shown}, update=True)

    def begin(self, bundle: Bundle) -> str:
        """Display something that :meth:`update` replaces; return its id."""
        display_id = token_hex(16)
        self.publish(bundle, transient={"display_id": display_id})
        return display_id

    def update(self, display_id: str, bundle: Bundle) -> None:
        """Replace what was displayed."""
        self.publish(bundle, transient={"display_id": display_id}, update=True)


RUNNING: Final = RunningCell()
"""The only one of this process."""


def show_waiting(state_dir: Path, tree_id: str) -> bool:
    """Show a tree in the cell that waits for it; return whether that was possible."""
    if not is_in_kernel():
        return False
    RUNNING.publish(render_tree(state_dir, tree_id))
    return True


def _render_picture(snapshot: dict[str, Any], session: str) -> Bundle:
    return {
        "text/plain": render_tree_text(snapshot, session),
        "text/html": render_picture_html(snapshot, session),
    }


def render_result(result: SessionResult[Any]) -> Bundle:
    """Return a result: how the session ended, its final message, its value and what it used."""
    words = [f"{result.session_id or 'session'}: {result.status}", *result.given_up]
    html = "".join(f"<p>{escape_cell_text(line)}</p>" for line in words) + render_prose(result.summary)
    text = "\n".join([*words, result.summary])
    if result.output is not None:
        shown = _to_readable(result.output)
        html, text = html + block_text(shown), f"{text}\n{shown}"
    table = _build_usage_table(result.usage)
    return {"text/html": html + render_html_table([], table), "text/plain": render_text_table([text], table)}


def render_usage(usage: Usage) -> Bundle:
    """Return amounts as a table."""
    table = _build_usage_table(usage)
    return {"text/html": render_html_table([], table), "text/plain": repr(usage)}


def _build_usage_table(usage: Usage) -> list[tuple[str, ...]]:
    cost = f"${usage.cost_usd:,.4f}" + (" and more" if usage.unpriced_tokens else "")
    counts = (usage.turns, usage.tool_calls, usage.input_tokens, usage.output_tokens)
    return [
        ("turns", "tool calls", "input tokens", "output tokens", "cost"),
        (*(f"{count:,}" for count in counts), cost),
    ]


def render_pending(pending: Any) -> Bundle:
    """Return a request that waits, as a card."""
    return request_bundle(pending.request)


def request_bundle(request: ApprovalRequest) -> Bundle:
    """Return a request as a card, with all of its arguments."""
    covers = "every later call of the tool" if request.covers is None else ", ".join(request.covers)
    lines = [
        f"{request.session_id} asks for {request.tool} ({request.tier}); asked: {request.asked}",
        f"always would cover: {covers or 'this call only'}",
        *([request.opens] if request.opens else []),
    ]
    given = [(name, _to_readable(value)) for name, value in request.arguments.items()]
    return {
        "text/html": render_card(lines, given),
        "text/plain": render_text_table(lines, [("argument", "value"), *given]),
    }


def render_explanation(explanation: Any) -> Bundle:
    """Return what happens to a tool, as a line."""
    return {"text/html": f"<p>{escape_cell_text(str(explanation))}</p>", "text/plain": str(explanation)}


def record_bundle(record: JournalRecord) -> Bundle:
    """Return a fact of the journal."""
    return _render_table(["fact"], _record_table([record]))


def render_sequence(values: Sequence[Any]) -> Bundle | None:
    """Return a receipt, facts or results as a table; None for a sequence of anything else."""
    first = values[0] if values else None
    if isinstance(first, ReceiptLine):
        return _render_table([f"{len(values):,} sessions"], _build_receipt_table(values))
    if isinstance(first, JournalRecord):
        return _render_table([f"{len(values):,} facts"], _record_table(values))
    if isinstance(first, SessionResult):
        return _render_table([f"{len(values):,} results"], _build_results_table(values))
    return None


def _render_table(lines: Sequence[str], table: list[tuple[str, ...]]) -> Bundle:
    more = len(table) - 1 - MAX_ROWS
    lines, table = [*lines, *([f"the first {MAX_ROWS}"] if more > 0 else [])], table[: MAX_ROWS + 1]
    return {"text/html": render_html_table(lines, table), "text/plain": render_text_table(lines, table)}


def _build_receipt_table(lines: Sequence[ReceiptLine]) -> list[tuple[str, ...]]:
    return [
        ("session", "kind", "status", "agent", "tokens", "final message"),
        *(
            (
                line.session_id,
                line.kind.value,
                line.status.value + (" (forced)" if line.forced else ""),
                line.agent,
                f"{line.usage.tokens:,}",
                shorten(line.summary),
            )
            for line in lines
        ),
    ]


def _record_table(records: Sequence[JournalRecord]) -> list[tuple[str, ...]]:
    return [
        ("number", "session", "kind", "fact"),
        *((f"{each.seq:,}", each.session, read_kind(each.text), shorten(each.text)) for each in records),
    ]


def _build_results_table(results: Sequence[SessionResult[Any]]) -> list[tuple[str, ...]]:
    return [
        ("session", "status", "value", "final message"),
        *(
            (
                each.session_id,
                str(each.status),
                "" if each.output is None else shorten(_to_readable(each.output)),
                shorten(each.summary),
            )
            for each in results
        ),
    ]


def _to_readable(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return dump_readable(to_json_value(value))
    except Exception:  # noqa: BLE001 - a value of the program's own type: its own words do
        return repr(value)


_TYPES: Final = (
    ("sessiontree.api.tree.inbox", "PendingApproval", render_pending),
    ("sessiontree.sync.session", "PendingApproval", render_pending),
    ("sessiontree.contracts.recorded.approvals", "ApprovalRequest", request_bundle),
    ("sessiontree.contracts.recorded.results", "SessionResult", render_result),
    ("sessiontree.contracts.values.messages", "Usage", render_usage),
    ("sessiontree.policy.compiled", "Explanation", render_explanation),
    ("sessiontree.journal.record", "JournalRecord", record_bundle),
)
"""Values that know nothing of notebooks, and what shows them."""
