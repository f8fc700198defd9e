"""Users' settings: limits, budgets, bounds of messages and images; suggestions for unknown names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterable
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from sessiontree.contracts.errors import ConfigError

LIKENESS = 0.6
"""Minimum similarity, from 0 to 1, for one name to be suggested in place of another."""
MAX_LISTED = 12
"""Maximum number of names that an error lists."""


def find_nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to the given one, ignoring case; None if no name is similar."""
    folded = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name.strip().casefold(), folded, n=1, cutoff=LIKENESS)
    return folded[found[0]] if found else None


def suggest_nearest(name: object, known: Iterable[str]) -> str:
    """Return the suffix of an error that lists the known names: the nearest one, or nothing."""
    near = find_nearest_name(name, known) if isinstance(name, str) else None
    return "" if near is None else f"; did you mean {near!r}?"


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Return what an error says after "no … is named": the nearest name, or the known names."""
    names = sorted(known)
    near = find_nearest_name(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if not names:
        return "none is known"
    return f"choose one of: {', '.join(names[:MAX_LISTED])}{', …' if len(names) > MAX_LISTED else ''}"


SHOWN_CHARS = 60


class _LazySignature:
    """The signature of settings, made when it is asked for: their validators are built at their first use."""

    def __get__(self, instance: object, owner: type[BaseModel]) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("only the class has a __signature__")
        owner.model_rebuild()  # puts the complete signature in this one's place
        return inspect.signature(owner)


class StrictSettings(BaseModel):
    """Base of every public configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    FURTHER_NAMES: ClassVar[Collection[str]] = ()
    """Names that it accepts besides those of its settings."""

    def __init__(self, **given: Any) -> None:
        """Validate the settings.

        Raises:
            ConfigError: a setting is unknown or wrong; the error names each.
        """
        try:
            super().__init__(**given)
        except ValidationError as error:
            hidden = type(self).model_config.get("hide_input_in_errors", False)
            raise ConfigError(f"{type(self).__name__}: {describe_faults(error, hidden=hidden)}") from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Show the settings as parameters, also before their first use."""
        setattr(cls, "__signature__", _LazySignature())  # noqa: B010 - no annotation: it is no setting

    # Validation of a mapping skips __init__, so that an error in a nested setting keeps its location.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_nearest(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Add the probably intended name to the error about an unknown name."""
        try:
            return handler(given)
        except ValidationError as error:
            raise ValidationError.from_exception_data(
                error.title,
                [_add_nearest_name(cls, each) for each in error.errors(include_url=False)],
                hide_input=cls.model_config.get("hide_input_in_errors", False),
            ) from None


def describe_faults(error: ValidationError, *, hidden: bool = True, whole: str = "") -> str:
    """Return the faults of settings, each with its location; without links, and without values if hidden.

    Args:
        error: What pydantic found.
        hidden: Whether values are left out.
        whole: What the value itself is called; empty = it is a mapping of settings.
    """
    return "; ".join(_describe_fault(each, hidden, whole) for each in error.errors(include_url=False))


def _describe_fault(error: ErrorDetails, hidden: bool, whole: str) -> str:
    kind, said, given = error["type"], error["msg"], error["input"]
    place = ".".join(map(str, (whole, *error["loc"]) if whole else error["loc"])) or "the whole"
    if kind == CHOICE:
        near = suggest_nearest(given, said.split(", "))
        return f"{place}{'' if hidden else f' {_shorten(given)}'} is not one of {said}{near}"
    if kind == GIVE:
        return f"{place}: give {said}" if hidden else f"{place} is {_shorten(given)}; give {said}"
    shown = "" if hidden or kind in {_UNKNOWN, "missing"} else f" (given: {_shorten(given)})"
    return f"{place}: {said}{shown}"


GIVE: Final = "give"
"""The type of a fault whose text is what to give."""
CHOICE: Final = "choice"
"""The type of a fault whose text is a list of what there is."""
_UNKNOWN = "unknown_setting"


def _add_nearest_name(settings: type[StrictSettings], error: ErrorDetails) -> InitErrorDetails:
    """Return one fault; if a setting of this model is unknown, with the nearest name."""
    kind, said, place = error["type"], error["msg"].removeprefix("Value error, "), error["loc"]
    if kind == "extra_forbidden" and len(place) == 1:
        kind, said = _UNKNOWN, _advise(settings, str(place[0]))
    # A custom error needs no pydantic context and has no link to pydantic's documentation.
    told = PydanticCustomError(kind, "{said}", {"said": said})
    return InitErrorDetails(type=told, loc=place, input=error["input"])


def _advise(settings: type[StrictSettings], name: str) -> str:
    for outer, field in settings.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and name in inner.model_fields:
            return (
                "no setting is called that here; write "
                f"{settings.__name__}({outer}={inner.__name__}({name}=…))"
            )
    aliases = (field.alias for field in settings.model_fields.values())
    known = (alias for alias in aliases if alias is not None)
    own = {*settings.model_fields, *settings.FURTHER_NAMES}
    names = {*own, *known} if "_" not in name else own
    return f"no setting is called that; {suggest_names(name, names)}"


def _shorten(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an author's own class
        text = f"<{type(value).__name__} that can't be shown>"
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


S = TypeVar("S", bound=StrictSettings)
_DEFAULTS: Final[dict[type[StrictSettings], StrictSettings]] = {}


def get_default_settings(kind: type[S]) -> S:
    """Return settings that are all at their defaults: one object for all, since settings never change."""
    made = _DEFAULTS.get(kind)
    if made is None:
        made = _DEFAULTS[kind] = kind()
    return cast("S", made)


class Limits(StrictSettings):
    """Bounds of one tree; all are checked before anything starts."""

    max_depth: int = Field(default=4, ge=1, le=64)
    """Deepest level; Main is 0, a Branch at most one above this, a Worker at most this."""
    max_children: int = Field(default=8, ge=0)
    """Maximum live children of one session."""
    max_live: int = Field(default=256, ge=1)
    """Maximum live sessions of the tree."""
    max_total: int = Field(default=10_000, ge=1)
    """Maximum sessions of the tree, including those that have ended."""
    max_turns: int = Field(default=50, ge=1)
    """Maximum model calls of a session for one incoming message."""
    max_repeats: int | None = Field(default=5, ge=3)
    """How often a model may make the same calls in a row that end alike, until its run ends; it is warned two
    times before. None = no bound."""
    model_retries: int = Field(default=2, ge=0, le=20)
    """Maximum retries of a failed model call, if its error says that a retry may help."""
    model_timeout_s: float | None = Field(default=600.0, gt=0)
    """Time limit of one reply of a model that the gateway calls, in seconds; None = no limit."""
    tool_timeout_s: float = Field(default=120.0, gt=0)
    """Time limit of one tool call in seconds, unless the tool declares its own."""
    max_commands: int = Field(default=16, ge=1, le=256)
    """Maximum commands of one session that run at a time; others wait, and their time limit begins later."""
    max_open_approvals: int | None = Field(default=256, ge=1)
    """Maximum approval requests of the tree that wait at a time; further ones are denied at once. None = no
    limit."""
    approval_expiry_s: float = Field(default=900.0, gt=0)
    """Seconds after which an unanswered approval request counts as denied."""
    approval_patience_s: float | None = Field(default=30.0, ge=0)
    """Seconds that a turn waits for a person before the model continues; 0 = none, None = until answered."""
    branch_ttl_s: float | None = Field(default=1800.0, gt=0)
    """Time to live of a Branch, in seconds from its first adoption; None = no limit."""
    worker_ttl_s: float | None = Field(default=300.0, gt=0)
    """Time to live of a Worker, in seconds from its first adoption; None = no limit."""
    cancel_grace_s: float = Field(default=30.0, ge=0)
    """Seconds that a cancelled session has to wrap up before it is removed from its host."""


class Budget(StrictSettings):
    """Amounts that a session and everything below it may spend; None = no cap of its own."""

    tokens: int | None = Field(default=None, ge=0)
    """Input and output tokens together."""
    cost_usd: float | None = Field(default=None, ge=0)
    """Cost of the model calls in dollars."""
    wall_s: float | None = Field(default=None, gt=0)
    """Seconds from its spawn."""
    tool_calls: int | None = Field(default=None, ge=0)
    """Number of calls of tools."""
    sessions: int | None = Field(default=None, ge=0)
    """Number of sessions below it."""


MINUTE_MS: Final = 60_000
MAX_PER_MINUTE: Final = 600


class MessagePolicy(StrictSettings):
    """Limits on the messages of Branches: which agents may send any, how often, and how long one may be.

    Main is not limited. By default nothing is limited. In a policy file the members may be written in camel
    case (``perMinute``).
    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)

    agents: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] | None = None
    """Names of the agents whose Branches may send messages; None = all, empty = none."""
    per_minute: int | None = Field(default=None, ge=1, le=MAX_PER_MINUTE)
    """Maximum messages of one Branch within any 60 seconds; None = no limit."""
    max_chars: int | None = Field(default=None, ge=1)
    """Maximum characters of a Branch's message; None = no limit."""


MAX_SOURCE_BYTES: Final = 20 * 2**20
"""Maximum bytes of an encoded image, before base64; larger ones are not read."""
MAX_SOURCE_PIXELS: Final = 40_000_000
"""Maximum pixels of an image according to its header; larger ones are never decoded."""
MAX_IMAGES: Final = 20
"""Maximum images of one result."""


class ImageLimits(StrictSettings):
    """Size limits of an image for a model; larger images are scaled down in proportion."""

    max_width: int = Field(default=1200, ge=16, le=8192)
    """In pixels."""
    max_height: int = Field(default=1200, ge=16, le=8192)
    """In pixels."""
    max_bytes: int = Field(default=2**20, ge=4096, le=16 * 2**20)
    """Size of the encoded image, before base64."""

    def narrowed(self, other: ImageLimits | None) -> ImageLimits:
        """Return the narrower limit of these and ``other`` for each measure; without it, these limits."""
        if other is None:
            return self
        mine, others = self.model_dump(), other.model_dump()
        return ImageLimits(**{name: min(most, others[name]) for name, most in mine.items()})


def detect_image_type(head: bytes) -> str | None:
    """Return the media type of a file that begins with these bytes; None if models do not accept it.

    Args:
        head: At least 12 bytes, or the whole file.

    Source: the PNG, JPEG (JFIF), GIF and WebP (RIFF) file formats.
    """
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None
