"""One tool's parameters, compiled once: normalising, coercing and validating the arguments of a call.

The schema is the contract: what it refuses is refused, even where the model behind it would be more
lenient; the model then adds its own checks and makes the typed value.
Source: seed 000, section 6; DESIGN section 5, prepare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.contracts.params import ALLOW_EMPTY_KEYWORD
from sessiontree.contracts.tool import RawTool, Tool
from sessiontree.schema.checker import MAX_TOLD, Checker, shown
from sessiontree.schema.coercion import Coercer
from sessiontree.schema.derive import marked_schema, schema_digest, without_markers
from sessiontree.schema.dialect import Dialect
from sessiontree.schema.flat_unions import UNIONS, Flattener
from sessiontree.schema.jsonform import LARGEST_NUMBER, NotJson, json_form
from sessiontree.schema.keywords import Schema
from sessiontree.schema.loss_report import Cleaned, LossReport
from sessiontree.schema.parameter_aliases import Spellings
from sessiontree.schema.pointer import json_pointer
from sessiontree.schema.provider_schema import clean
from sessiontree.schema.refusal import refusal

_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


def compile_tool(tool: Tool[Any]) -> CompiledTool:
    """Return the tool's parameters, compiled; done once per tool.

    Raises:
        ConfigError: the parameters have no JSON Schema with an object at its root, or an alias clashes.
    """
    try:
        return CompiledTool(tool)
    except ConfigError as error:
        raise ConfigError(f"tool {tool.name!r}: {error}") from error


class CompiledTool:
    """A tool's parameters in the forms that calls need.

    Args:
        tool: What to compile.

    Raises:
        ConfigError: as :func:`compile_tool`.
    """

    __slots__ = (
        "_build",
        "_checker",
        "_cleaned",
        "_closed",
        "_coercer",
        "_fits",
        "_is_raw",
        "_marked",
        "_names",
        "_needed",
        "_properties",
        "_spellings",
        "_unsettled",
        "digest",
        "name",
        "schema",
    )

    def __init__(self, tool: Tool[Any]) -> None:
        self.name = tool.name
        """The tool's name."""
        self._is_raw = isinstance(tool, RawTool)
        self._marked = marked_schema(tool)
        self.schema = without_markers(self._marked)
        """The JSON Schema every call is checked against; not to be changed."""
        self._cleaned: dict[str, Cleaned] = {}
        self.digest = schema_digest(self.schema)
        """SHA-256 (hex) of the schema."""
        self._checker = Checker(self.schema)
        self._fits = self._checker.fits
        self._coercer = Coercer(self._marked)
        self._properties = _object(_as_one_object(self._marked), "properties")
        self._names = {name: name for name in self._properties}
        self._unsettled = frozenset(
            name for name, part in self._properties.items() if not self._coercer.is_settled(part)
        )
        self._closed = self._marked.get("additionalProperties") is False and (
            "patternProperties" not in self._marked
        )
        self._needed = self._needs()
        fields = {} if self._is_raw else _field_spellings(tool.Params, self._names)
        self._spellings = Spellings(self._names, {**fields, **tool.param_aliases})
        self._build = self._builder(tool)

    def shown_in(self, dialect: Dialect) -> Cleaned:
        """Return the schema as models of a dialect are shown it, and what that lost; cleaned once.

        Raises:
            ConfigError: cleaned it grows too large.
        """
        found = self._cleaned.get(dialect.name)
        if found is None:
            found = self._cleaned[dialect.name] = clean(self.schema, dialect)
        return found

    def validate(self, arguments: Mapping[str, JsonValue]) -> tuple[Any, dict[str, JsonValue]]:
        """Return what the tool gets and what names the call.

        In this order: other spellings become names, slips of type are put right, what is required must
        be there, and the result must fit the schema and the model. Of a model's parameters empty text is one
        that is not there, unless it may be empty; a RawTool's schema decides alone.

        Args:
            arguments: As they came; checked to be JSON, so anything may be handed in.

        Returns:
            The parameters (an instance of the tool's model; of a RawTool a dict of its own), and the final
            arguments: fresh pure JSON by canonical name, only what was given, without defaults.

        Raises:
            ValidationError: the arguments do not fit. ``field`` points at the first field that fails, by
                canonical name; None where the whole object fails.

        Contract: never mutates the arguments; raises nothing else, whatever is handed in.
        """
        final = self._as_given(arguments)
        if final is None or not self._fits(final):
            final = self.normalise(arguments)
            if not self._is_raw or not self._fits(final):
                self._refuse_missing(final)
                self._refuse_unknown(final)
                self._checker.check(final)
        try:
            return self._build(final), final
        except ValidationError:
            raise
        except Exception as error:
            # A model's own validators may raise anything; whatever it was, they did not accept the arguments.
            raise refusal(error, final) from error

    def normalise(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return fresh arguments by canonical name, slips of type put right, nothing required yet.

        Optional parameters given as null are left out, unless their schema takes null.

        Raises:
            ValidationError: the arguments are no JSON object, or two spellings of one parameter are given.

        Contract: never mutates the arguments; idempotent.
        """
        if not isinstance(arguments, Mapping):
            raise ValidationError(f"the arguments must be an object, not {type(arguments).__name__}")
        try:
            plain = json_form(self._spellings.rename(arguments))
            coerced = self._coercer.coerce(plain, self._marked)
            # Text that spelled a structure may have brought in more levels than are taken.
            final = plain if coerced is plain else json_form(coerced)
        except NotJson as error:
            pointer = json_pointer(*reversed(error.path))
            where = pointer[1:] or "the arguments"
            raise ValidationError(f"{where}: the value {error.reason}", pointer or None) from error
        except RecursionError as error:
            raise ValidationError("the arguments are nested too deep") from error
        return final if isinstance(final, dict) else {}

    def _as_given(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
        """Return a copy of arguments that normalising would leave as they are, None where it might not."""
        if type(arguments) is not dict:
            return None
        names, unsettled = self._names, self._unsettled
        final: dict[str, JsonValue] = {}
        for given, value in arguments.items():
            name = names.get(given)
            if name is None:
                return None
            kind = type(value)
            if kind is str and value and value.isascii():
                if name in unsettled and value.strip() != value:
                    return None
            elif kind is int:
                if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
                    return None
            elif kind is not bool and value is not None:
                value = self._copied_as_given(name, value)
                if value is None:
                    return None
            final[name] = value
        return final

    def _copied_as_given(self, name: str, value: JsonValue) -> JsonValue:
        """Return a copy of one value that normalising would leave as it is, None where it might not."""
        try:
            copy = json_form(value, 1)
            same = copy != "" and (
                name not in self._unsettled or self._coercer.coerce(copy, self._properties[name]) is copy
            )
        except (NotJson, RecursionError):
            return None
        return copy if same else None

    def _needs(self) -> tuple[tuple[str, bool, bool], ...]:
        """Return every required name, and whether null and the empty string are values of it."""
        required = self._marked.get("required")
        return tuple(
            (
                name,
                self._coercer.accepts(None, part),
                self._is_raw or self._coercer.any_variant(part, _allows_empty),
            )
            for name in (required if isinstance(required, list) else [])
            if isinstance(name, str)
            for part in [self._properties.get(name, {})]
        )

    def _refuse_missing(self, arguments: Mapping[str, JsonValue]) -> None:
        for name, null_counts, empty_counts in self._needed:
            value = arguments.get(name)
            missing = name not in arguments or (value is None and not null_counts)
            if missing or (value == "" and not empty_counts):
                raise ValidationError(f"{name} required", json_pointer(name))

    def _refuse_unknown(self, arguments: Mapping[str, JsonValue]) -> None:
        unknown = [name for name in arguments if name not in self._names] if self._closed else []
        if unknown:
            listed = ", ".join(shown(name) for name in unknown[:MAX_TOLD])
            known = ", ".join(self._names) or "none"
            raise ValidationError(
                f"unknown parameter{'s' * (len(unknown) > 1)} {listed}; known: {known}",
                json_pointer(unknown[0]),
            )

    def _builder(self, tool: Tool[Any]) -> Callable[[dict[str, JsonValue]], Any]:
        """Return what makes the tool's parameters of final arguments, sharing nothing that can change."""
        if isinstance(tool, RawTool):
            return json_form
        validator = tool.Params.__pydantic_validator__
        if _wants_json_text(tool.Params.__pydantic_core_schema__):
            return lambda final: validator.validate_json(dump_json(final))
        if self._closed and all(
            self._coercer.takes_only(_SCALARS, part) for part in self._properties.values()
        ):
            return validator.validate_python
        return lambda final: validator.validate_python(json_form(final))


def _as_one_object(schema: Schema) -> Schema:
    """Return the schema with the properties that variants of a union at its root name."""
    if UNIONS.isdisjoint(schema):
        return schema
    return Flattener(schema, LossReport()).flattened(schema, (), follow=True)


def _object(schema: Schema, keyword: str) -> dict[str, JsonValue]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _allows_empty(schema: Schema) -> bool:
    values = schema.get("enum")
    return (
        schema.get(ALLOW_EMPTY_KEYWORD) is True
        or schema.get("minLength") == 0
        or schema.get("const") == ""
        or (isinstance(values, list) and "" in values)
    )


def _field_spellings(model: type[BaseModel], names: Mapping[str, str]) -> dict[str, str]:
    """Return the spellings a model's own fields add: the Python name, and further alias choices."""
    spellings: dict[str, str] = {}
    for field, info in model.model_fields.items():
        alias = info.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        said = [choice for choice in (*choices, field) if isinstance(choice, str)]
        name = next((choice for choice in said if choice in names), None)
        if name is not None:
            spellings |= {choice: name for choice in said if choice not in names}
    return spellings


def _wants_json_text(core_schema: object) -> bool:
    """Whether a model is strict somewhere or decodes bytes, and so tells JSON text from Python values."""
    if isinstance(core_schema, dict):
        if core_schema.get("strict") is True or core_schema.get("val_json_bytes", "utf8") != "utf8":
            return True
        return any(_wants_json_text(value) for value in core_schema.values())
    return isinstance(core_schema, list | tuple) and any(_wants_json_text(item) for item in core_schema)
