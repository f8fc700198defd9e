"""Orders to an interpreter: the one that opens a program, with its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sessiontree.contracts.recorded.programs import MAX_PROGRAM_CALLS, MAX_PROGRAM_NOTES
from sessiontree.programs.signatures import ProgramFace

MEMORY_BYTES: Final = 64 * 2**20
TURN_S: Final = 5.0
"""How long a program may compute without asking for anything."""
COMPUTING_S: Final = 60.0
"""How long it may compute in all."""
DEPTH: Final = 200
"""How deep its functions may call each other."""


def order_opening(
    code: str,
    face: ProgramFace,
    *,
    inputs: Mapping[str, Any] | None = None,
    clock_ms: int = 0,
    seed: str,
    is_checked: bool = False,
) -> dict[str, Any]:
    """Return the order that opens a program.

    Args:
        code: Its text.
        face: The functions that it may call.
        inputs: Its variables.
        clock_ms: The time that its clock shows, in milliseconds since 1970.
        seed: Of its random numbers.
        is_checked: Whether its types were checked before.
    """
    given = dict(inputs or {})
    return {
        "op": "open",
        "code": code,
        "inputs": given,
        "stubs": face.stubs + "".join(f"{name}: Any\n" for name in given),
        "prelude": face.prelude,
        "names": sorted(face.tools),
        "clock_ms": clock_ms,
        "seed": seed,
        "limits": {
            "calls": MAX_PROGRAM_CALLS,
            "notes": MAX_PROGRAM_NOTES,
            "memory_bytes": MEMORY_BYTES,
            "turn_s": TURN_S,
            "computing_s": COMPUTING_S,
            "depth": DEPTH,
        },
        "is_checked": is_checked,
    }
