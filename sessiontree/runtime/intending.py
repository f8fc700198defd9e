"""Intents made durable with the approval that lets their calls run: one commit and one way less for each.

Only while a host embodies the session: then the call runs as soon as the answer is there, and after a crash
it may have run. A session that sleeps hears the answer first and writes its intent itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sessiontree.contracts.codec import pack
from sessiontree.contracts.stimuli import ApprovalAnswered
from sessiontree.journal.record import Packed
from sessiontree.runtime.seat import Seat
from sessiontree.tree.instructions import Deliver, TreeInstruction


def intended_with(
    instructions: Sequence[TreeInstruction], seats: Mapping[str, Seat], cause: str
) -> tuple[list[TreeInstruction], list[tuple[Seat, Packed]]]:
    """Return the instructions, their answers saying what goes with them, and the intents that do."""
    told: list[TreeInstruction] = []
    intents: list[tuple[Seat, Packed]] = []
    for instruction in instructions:
        answer = instruction.stimulus if isinstance(instruction, Deliver) else None
        if isinstance(instruction, Deliver) and isinstance(answer, ApprovalAnswered):
            seat = seats.get(instruction.session)
            intent = None if seat is None else seat.asked.pop(answer.request_id, None)
            listens = seat is not None and seat.link is not None and not seat.over
            if seat is not None and listens and intent is not None and answer.decision == "approved":
                intents.append((seat, Packed(cause, answer.at_ms, pack(intent))))
                answer = replace(answer, intended=True)
            told.append(replace(instruction, stimulus=answer))
        else:
            told.append(instruction)
    return told, intents
