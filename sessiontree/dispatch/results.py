"""The results of preparing and of running a tool call, and the message made of a tool's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.results import Artifact, ArtifactKind, ToolResult, Untrusted
from sessiontree.contracts.recorded.tool_inputs import AnsweredInput, ToolInput
from sessiontree.contracts.settings.settings import MAX_IMAGES, ImageLimits
from sessiontree.contracts.values.jsonable import JsonValue, to_json_value
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_line, cut_text
from sessiontree.contracts.values.untrusted import wrap_untrusted
from sessiontree.dispatch.tool_table import ToolEntry


@dataclass(slots=True)
class PreparedCall:
    """A checked call, with everything that its host needs to run it."""

    call: CheckedCall
    provider_id: str
    """The id that the model gave the call; the result carries it."""
    entry: ToolEntry
    params: Any
    """Validated parameters."""
    needs_approval: bool
    places: frozenset[str] | None = None
    """The protected places it may change once it is allowed; None = it names no files and may change all."""
    outside: frozenset[str] = frozenset()
    """The places outside the workspace that it may reach once it is allowed."""
    answered: AnsweredInput | None = None
    """The input that a person gave it."""

    @property
    def harmless(self) -> bool:
        """Whether it changes nothing and needs no approval."""
        return self.call.tier == 0 and not self.needs_approval


@dataclass(slots=True)
class ImmediateOutcome:
    """The result of a call that has run, or that got its result without running."""

    key: str
    outcome: Outcome
    message: ToolResultMessage
    artifacts: tuple[Artifact, ...] = ()
    again: bool = False
    """Whether to try the call again: its failure may be temporary, and repeating it changes nothing."""
    untrusted: bool = False
    """Whether its text comes from an untrusted source."""
    is_json: bool = False
    """Whether its text is the JSON text of the tool's output; only asked for programs' calls."""
    wanted: ToolInput | None = None
    """What a person must answer before the call can go on; it has no result then."""


@dataclass(frozen=True, slots=True)
class CallTimeLimits:
    """How long the calls of a session may take, in seconds."""

    tool_timeout_s: float
    """A call whose tool and agent set no limit."""
    tool_timeouts: Mapping[str, float]
    """What the agent sets, by tool."""
    answer_s: float
    """A person's answer to a question."""
    person_tools: frozenset[str]
    """Names of the tools that a person answers."""

    def timeout_s(self, prepared: PreparedCall) -> float:
        """Return the time limit of a call in seconds: the agent's, else the tool's, else the tree's."""
        tool = prepared.entry.tool
        own_s = self.tool_timeouts.get(tool.name) if self.tool_timeouts else None
        if tool.name in self.person_tools:
            return own_s or tool.timeout_s or self.answer_s
        return own_s or tool.timeout_s or self.tool_timeout_s


FOREIGN = "tool result"
"""Name of untrusted text in its marks if the tool does not mark it itself."""
DISPLAY_CHARS = 400
MAX_DETAILS_WEIGHT = 400_000
"""Greatest weight of details: each character and each member counts 1."""
MAX_ARTIFACTS = 1_000
MAX_ARTIFACT_CHARS = 2**16
NOTE_CHARS = 400
"""Characters kept for the text about images."""
ARTIFACT_KINDS = get_args(ArtifactKind)


def make_result_message(
    call_id: str,
    tool: str,
    result: object,
    at_ms: int,
    *,
    max_chars: int,
    untrusted: Untrusted = False,
    marks: bool = True,
) -> ToolResultMessage:
    """Return a tool's result as a message; its text is cut to ``max_chars`` characters.

    Text from outside is put between marks if the result or, by ``untrusted``, its tool says so, unless a
    program reads it (``marks``). Images are
    kept as the tool gave them: :class:`~sessiontree.dispatch.images.Pictures` fits them later, and the text
    leaves room for its note. If details weigh too much, only a note of them is kept.

    Raises:
        ExecutionError: the tool returned something that is not a ToolResult, or has parts that can't be kept.
    """
    if not isinstance(result, ToolResult):
        raise ExecutionError(f"{tool} returned {type(result).__name__} instead of a ToolResult")
    try:
        text = result.text_for_model()
    except (TypeError, ValueError, RecursionError) as error:
        raise ExecutionError(f"{tool} returned output without a JSON form: {error}") from error
    if result.images != () or result.artifacts != () or type(result.display) is not str:
        _check_parts(tool, result)
    room = max_chars - min(NOTE_CHARS, max_chars // 2) if result.images else max_chars
    if marks and True in (result.untrusted, untrusted) and "marked" not in (result.untrusted, untrusted):
        text = mark_foreign(text, tool, room)
    elif len(text) > room:
        text = cut_text(text, room)
    text_block = TextContent(text)
    content: tuple[TextContent | ImageContent, ...] = (
        (text_block, *result.images) if result.images else (text_block,)
    )
    details: JsonValue = None
    if result.details is not None or result.display:
        details = {
            "display": cut_line(result.display, DISPLAY_CHARS),
            "details": _convert_details(tool, result),
        }
    return ToolResultMessage(call_id, tool, content, details, False, at_ms)


def mark_foreign(text: str, tool: str, max_chars: int) -> str:
    """Return untrusted text of a tool between marks, cut so that the marks stay whole."""
    room = max(0, max_chars - len(wrap_untrusted("", kind=FOREIGN, source=tool)))
    return wrap_untrusted(cut_text(text, room) if len(text) > room else text, kind=FOREIGN, source=tool)


def _check_parts(tool: str, result: ToolResult) -> None:
    """Refuse parts of a result that the journal can't store."""
    if not isinstance(result.display, str):
        raise ExecutionError(f"{tool} returned {type(result.display).__name__} as display instead of text")
    if len(result.images) > MAX_IMAGES:
        raise ExecutionError(
            f"{tool} returned {len(result.images)} images; at most {MAX_IMAGES} fit a result"
        )
    if len(result.artifacts) > MAX_ARTIFACTS:
        raise ExecutionError(
            f"{tool} returned {len(result.artifacts)} artifacts; at most {MAX_ARTIFACTS} fit a result"
        )
    if not isinstance(result.image_limits, ImageLimits | None):
        raise ExecutionError(f"{tool} returned {result.image_limits!r} as image_limits; give ImageLimits")
    for image in result.images:
        if not (isinstance(image, ImageContent) and _are_texts(image.data, image.mime_type)):
            raise ExecutionError(f"{tool} returned {image!r} among its images; give ImageContent of text")
    for artifact in result.artifacts:
        texts = _list_texts(artifact) if isinstance(artifact, Artifact) else [None]
        if not (_are_texts(*texts) and artifact.kind in ARTIFACT_KINDS):
            raise ExecutionError(f"{tool} returned {artifact!r} among its artifacts; give Artifacts of text")
        size = sum(map(len, texts))
        if size >= MAX_ARTIFACT_CHARS:
            raise ExecutionError(
                f"{tool} returned an artifact of {size:,} characters; below {MAX_ARTIFACT_CHARS:,} are kept "
                "inline: write a file and name its path"
            )


def _list_texts(artifact: Artifact) -> list[str]:
    places = [place for place in (artifact.path, artifact.uri, artifact.data) if place is not None]
    return [artifact.description, *places]


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _convert_details(tool: str, result: ToolResult) -> JsonValue:
    try:
        details = to_json_value(result.details)
    except RecursionError as error:
        raise ExecutionError(f"{tool} returned details that are nested too deeply") from error
    if _weigh(details, MAX_DETAILS_WEIGHT) <= MAX_DETAILS_WEIGHT:
        return details
    return {"omitted": True, "reason": f"they weigh more than {MAX_DETAILS_WEIGHT:,} characters and members"}


def _weigh(value: JsonValue, most: int) -> int:
    """Return the characters and members of a value; counting ends beyond ``most``."""
    weight, left = 0, [value]
    while left and weight <= most:
        item = left.pop()
        if isinstance(item, str):
            weight += len(item)
        elif isinstance(item, int):
            weight += item.bit_length() // 3  # fewer than its digits
        elif isinstance(item, list):
            weight += len(item)
            left += item
        elif isinstance(item, dict):
            weight += len(item) + sum(map(len, item))
            left += item.values()
    return weight
