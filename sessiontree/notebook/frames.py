"""Data frames of what a tree was: its sessions, its facts, receipts and results. They need pandas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.values.data_frames import make_data_frame
from sessiontree.contracts.values.messages import Usage
from sessiontree.journal.record import JournalRecord
from sessiontree.notebook.tree_look import look
from sessiontree.tree.report import ReceiptLine


def to_pandas(values: Any) -> Any:
    """Return a tree, a receipt, facts, results or usage as a ``pandas.DataFrame``.

    Args:
        values: A tree, open or closed: a row for each session. Else a value of the package, or several of one
            kind: a row for each.

    Raises:
        ConfigError: pandas is not installed, or it is something else.
        SessionTreeError: the tree can't be read.
    """
    if hasattr(values, "tree_id") and hasattr(values, "state_dir"):
        snapshot = look(values.state_dir, values.tree_id)["snapshot"]
        return make_data_frame(
            (dict(zip(snapshot["columns"], row, strict=True)) for row in snapshot["rows"]), "a tree"
        )
    given = [values] if isinstance(values, Usage | SessionResult | JournalRecord | ReceiptLine) else values
    if not isinstance(given, Iterable):
        raise ConfigError(
            f"{type(values).__name__} has no form as a data frame; give a tree, a receipt or facts"
        )
    return make_data_frame([_build_row(each) for each in given], "this")


def _build_row(value: Any) -> dict[str, Any]:
    if isinstance(value, ReceiptLine):
        usage = asdict(value.usage)
        said = {**value._asdict(), "kind": value.kind.value, "status": value.status.value}
        return {**{name: each for name, each in said.items() if name != "usage"}, **usage}
    if isinstance(value, JournalRecord):
        return value.to_row()
    if isinstance(value, SessionResult):
        return {
            "session": value.session_id, "status": value.status.value, "summary": value.summary,
            "output": value.output, **asdict(value.usage),
        }  # fmt: skip
    if isinstance(value, Usage):
        return asdict(value)
    raise ConfigError(f"{type(value).__name__} has no form as a row of a data frame")
