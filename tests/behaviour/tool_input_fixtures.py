"""Trees whose model makes a call that needs a person's input."""

from __future__ import annotations

from typing import Final

from sessiontree import AgentSpec, ScriptedModel, script_call

AGENTS: Final = {"default": AgentSpec(tools=("book",))}


def booking_model(rounds: int) -> ScriptedModel:
    """Return a model whose sessions book once, then end."""
    return ScriptedModel([script_call("book", rounds=rounds), "done"])
