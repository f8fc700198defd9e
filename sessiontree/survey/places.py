"""Places: the tool that looks where remembered definitions and sections stand now."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import READER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import Reader
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import ALL_KINDS, Tool
from sessiontree.survey.entries import FileEntries
from sessiontree.survey.entry import summary_of
from sessiontree.survey.remembering import file_entries

MAX_WANTED = 60


class WantedPlace(BaseModel):
    """A place as it is remembered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, max_length=4096)
    kind: str = Field(max_length=20)
    name: str = Field(max_length=4096)
    first: int = Field(ge=1)


class CheckPlacesParams(BaseModel):
    """Which places to look for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    places: list[WantedPlace] = Field(
        min_length=1, max_length=MAX_WANTED, description="Places as memory names them, path and name."
    )


class PresentPlace(BaseModel):
    """A place as it is now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int
    last: int
    text: str
    """What would be remembered of it now."""

    @property
    def summary(self) -> str:
        """What its file says about it."""
        return summary_of(self.text)


class CheckedPlaces(BaseModel):
    """Where the places stand, in the order they were asked for; None where there is none of that name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    places: tuple[PresentPlace | None, ...]


class CheckPlaces(Tool[CheckPlacesParams]):
    """Looks into each file once; of several places of one name the nearest to the remembered line counts."""

    name: ClassVar[str] = "check_places"
    description: ClassVar[str] = (
        "Say on which lines remembered functions, classes, sections and files stand now, and what they say."
    )
    Params: ClassVar[type[BaseModel]] = CheckPlacesParams
    label: ClassVar[str] = "Check places"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.READ_ONLY
    kinds: ClassVar[frozenset[SessionKind]] = ALL_KINDS
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name})
    idempotent: ClassVar[bool] = True

    async def execute(self, params: CheckPlacesParams, ctx: ToolContext) -> ToolResult:
        """Read the files in a thread; the output is a :class:`CheckedPlaces`.

        Raises:
            PermissionDenied: the session holds no reader.
            ExecutionError: the call was stopped.
        """
        reader = ctx.require(READER)
        abandoned = threading.Event()
        try:
            places = await asyncio.to_thread(
                _check, reader, params.places, lambda: abandoned.is_set() or ctx.cancelled
            )
        finally:
            # the thread of a cancelled call stops at the next file
            abandoned.set()
        there = sum(place is not None for place in places)
        return ToolResult(
            output=CheckedPlaces(places=tuple(places)).model_dump(mode="json"),
            display=f"{there} of {len(places)} places are there",
        )


def _check(
    reader: Reader, wanted: Sequence[WantedPlace], stop: Callable[[], bool]
) -> list[PresentPlace | None]:
    files: dict[str, FileEntries] = {}
    for one in wanted:
        if stop():
            raise ExecutionError(f"can't check the places: stopped after {len(files)} files")
        if one.path not in files:
            files[one.path] = file_entries(reader, one.path)
    return [_present(files[one.path], one) for one in wanted]


def _present(file: FileEntries, wanted: WantedPlace) -> PresentPlace | None:
    named = [one for one in file.entries if (one.kind, one.name) == (wanted.kind, wanted.name)]
    if not named:
        return None
    nearest = min(named, key=lambda one: (abs(one.first - wanted.first), one.first))
    return PresentPlace(first=nearest.first, last=nearest.last, text=nearest.text)
