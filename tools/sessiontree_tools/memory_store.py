"""``memory_store``: remembers something."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.capabilities import MEMORY_WRITER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError, MemoryFailed
from sessiontree.contracts.memory import (
    MAX_SOURCE_CHARS,
    MAX_TEXT_CHARS,
    MEMORY_SCHEME,
    NewRecord,
    RecordType,
    Source,
)
from sessiontree.contracts.params import Trimmed
from sessiontree.contracts.results import Artifact, ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool

SHOWN_CHARS = 60


def check_source(source: str) -> str:
    """Return a source that can be cited.

    Raises:
        ValueError: it is not one line, or its lines run backwards.
    """
    if not source.isprintable():
        raise ValueError("a source is one line of visible characters")
    Source.of(source)
    return source


class MemoryStoreParams(BaseModel):
    """What to remember."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(
        min_length=1,
        max_length=MAX_TEXT_CHARS,
        description="What to remember: complete in itself, it is found by its words and meaning alone.",
    )
    type: RecordType = Field(
        default="free",
        description="decision: what was settled, and why. fact: what is so. identity: who somebody is. "
        "preference: what somebody wants. free: anything else.",
    )
    source: Annotated[str, Trimmed(), AfterValidator(check_source)] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SOURCE_CHARS,
        description="Where it comes from: a path, with lines as in `src/app.py#L3-L9`, or an address.",
    )

    @field_validator("text")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("the text holds nothing but white space")
        return text


class StoreMemory(Tool[MemoryStoreParams]):
    """Stores one record."""

    name = "memory_store"
    description = (
        "Remember something beyond this conversation: sessions below you find it at once, later trees of "
        "this agent and workspace when this tree has finished. Store what was decided or found out, one "
        "thing at a time, with its source; not what a file says anyway."
    )
    Params: ClassVar[type[BaseModel]] = MemoryStoreParams
    label = "Remember"
    section = "memory"
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"memory_writer"})
    idempotent = True

    async def execute(self, params: MemoryStoreParams, ctx: ToolContext) -> ToolResult:
        """Store the record, once per call id; the output is ``{status: "stored", id}``.

        Raises:
            ExecutionError: memory can't be written now; nothing was stored.
            PermissionDenied: the session stores nothing.
        """
        record = NewRecord(params.text, params.type, params.source)
        try:
            (stored,) = await ctx.require(MEMORY_WRITER).store([record], key=ctx.call_id)
        except MemoryFailed as error:
            raise ExecutionError(f"it was not stored: {error}") from error
        head = " ".join(params.text[:SHOWN_CHARS].split())
        return ToolResult(
            output={"status": "stored", "id": stored},
            display=f"remembered: {head}{'…' if len(params.text) > SHOWN_CHARS else ''}",
            artifacts=(
                Artifact("reference", f"memory record ({params.type})", uri=f"{MEMORY_SCHEME}{stored}"),
            ),
        )
