"""What is known about the command of a call before anybody is asked: its programs, and any doubt."""

from __future__ import annotations

import os

from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.recorded.approvals import CheckedCall, Precedent
from sessiontree.policy.commands.verdict import derive_precedent
from sessiontree.sandbox.commands.environment import make_program_finder


def find_precedent(config: TreeConfig, call: CheckedCall, workspace: str) -> Precedent | None:
    """Return what is known about the command that a call runs in a workspace; None = it runs no command."""
    member = next((row.command_in for row in config.tools if row.name == call.tool), "")
    if not member:
        return None
    if call.arguments.get("node"):
        doubt = "it runs on another node, and which programs are there is not known"
        return Precedent(False, (), doubt, doubt)
    try:
        return derive_precedent(call.arguments, member, make_program_finder(os.path.realpath(workspace)))
    except Exception as error:  # noqa: BLE001 - a person decides about a command that can't be judged
        doubt = f"it can't be judged: {describe_error(error)}"
        return Precedent(False, (), doubt, doubt)
