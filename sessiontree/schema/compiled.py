"""One tool's compiled parameters: normalises, coerces and validates the arguments of calls.

The schema is the contract: what it refuses is refused, even if the model behind it is more lenient. The model
then adds its own checks and makes the typed value.
Source: seed 000, section 6; DESIGN section 5, prepare.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from pydantic import AliasChoices, BaseModel

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.settings.settings import find_nearest_name
from sessiontree.contracts.tools.tool import ALLOW_EMPTY_KEYWORD, RawTool, Tool
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.pointer import make_json_pointer
from sessiontree.schema.checker import MAX_TOLD, Checker, make_refusal, shorten_json
from sessiontree.schema.coercion import Coercer, Spellings
from sessiontree.schema.derive import (
    compute_schema_digest,
    copy_raw_schema,
    derive_model_schema,
    remove_markers,
)
from sessiontree.schema.dialect import Cleaned, Dialect, LossReport, find_schema_warnings
from sessiontree.schema.json_form import LARGEST_NUMBER, NotJson, to_json_form
from sessiontree.schema.keywords import Schema
from sessiontree.schema.provider_schema import clean, remove_bounds
from sessiontree.schema.schema_merge import UNIONS, Flattener

_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_Aliases: TypeAlias = tuple[tuple[str, str], ...]
_MAX_COMPILED: Final = 256
"""Maximum number of compiled tools that are cached for later trees with the same tools."""


def compile_tool(tool: Tool[Any]) -> CompiledTool:
    """Return the tool's compiled parameters.

    Tools with the same name, aliases, and model or schema share the result. A rebuilt model has a new
    validator and is compiled again.

    Raises:
        ConfigError: the parameters have no JSON Schema with an object at its root, or an alias clashes.
    """
    aliases = tuple(tool.param_aliases.items())
    try:
        if isinstance(tool, RawTool):
            return _compile_schema(tool.name, json.dumps(copy_raw_schema(tool)), aliases, tool.brief)
        validator = tool.Params.__pydantic_validator__
        return _compile_model(tool.name, tool.Params, validator, aliases, tool.brief)
    except ConfigError as error:
        raise ConfigError(f"tool {tool.name!r}: {error}") from error


@lru_cache(maxsize=_MAX_COMPILED)
def _compile_schema(name: str, text: str, aliases: _Aliases, brief: bool) -> CompiledTool:
    """Return the compiled parameters of a RawTool whose schema has this JSON text."""
    return CompiledTool(name, json.loads(text), dict(aliases), brief=brief)


@lru_cache(maxsize=_MAX_COMPILED)
def _compile_model(
    name: str, model: type[BaseModel], validator: object, aliases: _Aliases, brief: bool
) -> CompiledTool:
    """Return the compiled parameters of a model; a rebuilt model differs by its validator."""
    return CompiledTool(name, derive_model_schema(model), dict(aliases), brief=brief, model=model)


class CompiledTool:
    """A tool's parameters in the forms that calls need; immutable, so trees may share it.

    Args:
        name: The tool's name.
        marked: The schema of its parameters, with markers; must not be changed.
        aliases: Other spellings of parameters, mapped to their names.
        brief: Whether models see the schema without its bounds.
        model: The parameters' model; None = the tool gets the arguments as they are.

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
        "_is_brief",
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
        "warnings",
    )

    def __init__(
        self,
        name: str,
        marked: Schema,
        aliases: Mapping[str, str],
        *,
        brief: bool,
        model: type[BaseModel] | None = None,
    ) -> None:
        self.name = name
        """The tool's name."""
        self._is_brief = brief
        self._is_raw = model is None
        self._marked = marked
        self.schema = remove_markers(self._marked)
        """The JSON Schema that every call is checked against; must not be changed."""
        self.warnings = find_schema_warnings(self.schema)
        """Parts of the schema that some models handle badly; see :func:`find_schema_warnings`."""
        self._cleaned: dict[str, Cleaned] = {}
        self.digest = compute_schema_digest(self.schema)
        """SHA-256 (hex) of the schema."""
        self._checker = Checker(self.schema)
        self._fits = self._checker.fits
        self._coercer = Coercer(self._marked)
        self._properties = _get_object(_merge_into_object(self._marked), "properties")
        self._names = {name: name for name in self._properties}
        self._unsettled = frozenset(
            name for name, part in self._properties.items() if not self._coercer.is_settled(part)
        )
        self._closed = self._marked.get("additionalProperties") is False and (
            "patternProperties" not in self._marked
        )
        self._needed = self._list_required()
        fields = {} if model is None else _list_field_spellings(model, self._names)
        self._spellings = Spellings(self._names, {**fields, **aliases})
        self._build = self._make_builder(model)

    def clean_for(self, dialect: Dialect) -> Cleaned:
        """Return the schema in the form for a dialect's models, and what it lost; cleaned only once.

        For a brief tool, bounds and defaults are not shown and do not count as lost.

        Raises:
            ConfigError: the cleaned schema is too large.
        """
        found = self._cleaned.get(dialect.name)
        if found is None:
            schema = (
                remove_bounds(self.schema, is_strict=dialect.is_strict) if self._is_brief else self.schema
            )
            found = self._cleaned[dialect.name] = clean(schema, dialect)
        return found

    def validate(self, arguments: Mapping[str, JsonValue]) -> tuple[Any, dict[str, JsonValue]]:
        """Return the tool's parameters and the final arguments of a call.

        The steps, in this order: spellings become names, wrong types are corrected, required parameters are
        checked, and the result must fit the schema and the model. For a model's parameters, empty text counts
        as not given unless the parameter may be empty; for a RawTool, only its schema decides.

        Args:
            arguments: As received; they are checked to be JSON, so any value may be passed.

        Returns:
            The parameters (an instance of the tool's model; for a RawTool a new dict), and the final
            arguments: fresh pure JSON by canonical name, only what was given, without defaults.

        Raises:
            ValidationError: the arguments do not fit. ``field`` points at the first field that fails, by
                canonical name; None if the whole object fails.

        Contract: never mutates the arguments; raises no other error, whatever is passed.
        """
        final = self._copy_as_given(arguments)
        # Most calls fit as they are, and only the others pay for being normalised.
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
            # A model's own validators may raise anything; in every case they did not accept the arguments.
            raise make_refusal(error, final) from error

    def normalise(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return fresh arguments by canonical name, with wrong types corrected; required ones may be missing.

        Optional parameters given as null are left out, unless their schema accepts null.

        Raises:
            ValidationError: the arguments are not a JSON object, or two spellings of one parameter are given.

        Contract: never mutates the arguments; idempotent.
        """
        if not isinstance(arguments, Mapping):
            raise ValidationError(f"the arguments must be an object, not {type(arguments).__name__}")
        try:
            plain = to_json_form(self._spellings.rename(arguments))
            coerced = self._coercer.coerce(plain, self._marked)
            # Text that spelled a structure may have added more levels than are accepted.
            final = plain if coerced is plain else to_json_form(coerced)
        except NotJson as error:
            pointer = make_json_pointer(*reversed(error.path))
            where = pointer[1:] or "the arguments"
            raise ValidationError(f"{where}: the value {error.reason}", pointer or None) from error
        except RecursionError as error:
            raise ValidationError("the arguments are nested too deep") from error
        return final if isinstance(final, dict) else {}

    def _copy_as_given(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
        """Return a copy of arguments that normalising would not change, or None if it might change them."""
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
                value = self._copy_value_as_given(name, value)
                if value is None:
                    return None
            final[name] = value
        return final

    def _copy_value_as_given(self, name: str, value: JsonValue) -> JsonValue:
        """Return a copy of one value that normalising would not change, or None if it might change it."""
        try:
            copy = to_json_form(value, 1)
            same = copy != "" and (
                name not in self._unsettled or self._coercer.coerce(copy, self._properties[name]) is copy
            )
        except (NotJson, RecursionError):
            return None
        return copy if same else None

    def _list_required(self) -> tuple[tuple[str, bool, bool], ...]:
        """Return every required name, and whether it accepts null and the empty string."""
        required = self._marked.get("required")
        return tuple(
            (
                name,
                self._coercer.accepts(None, part),
                self._is_raw or self._coercer.check_any_variant(part, _can_be_empty),
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
                # The name that the model did give is probably a misspelling of the missing one.
                unknown = [given for given in arguments if given not in self._names]
                near = find_nearest_name(name, unknown)
                meant = "" if near is None else f"; {shorten_json(near)} is not a parameter, write {name!r}"
                raise ValidationError(f"{name} required{meant}", make_json_pointer(name))

    def _refuse_unknown(self, arguments: Mapping[str, JsonValue]) -> None:
        unknown = [name for name in arguments if name not in self._names] if self._closed else []
        if unknown:
            listed = ", ".join(shorten_json(name) for name in unknown[:MAX_TOLD])
            known = ", ".join(self._names) or "none"
            raise ValidationError(
                f"unknown parameter{'s' * (len(unknown) > 1)} {listed}; known: {known}",
                make_json_pointer(unknown[0]),
            )

    def _make_builder(self, model: type[BaseModel] | None) -> Callable[[dict[str, JsonValue]], Any]:
        """Return a function that makes the tool's parameters from final arguments, without shared state."""
        if model is None:
            return to_json_form
        validator = model.__pydantic_validator__
        if _wants_json_text(model.__pydantic_core_schema__):
            # From JSON text a strict type accepts what JSON can't express otherwise, such as a date.
            return lambda final: validator.validate_json(dump_json(final))
        if self._closed and all(
            self._coercer.has_only_types(_SCALARS, part) for part in self._properties.values()
        ):
            # Without lists and objects the model's instance shares nothing with the recorded arguments.
            return validator.validate_python
        # A copy: the tool may change what it gets, and the arguments are recorded as they were checked.
        return lambda final: validator.validate_python(to_json_form(final))


def _merge_into_object(schema: Schema) -> Schema:
    """Return the schema with the properties that the variants of a union at its root name."""
    if UNIONS.isdisjoint(schema):
        return schema
    return Flattener(schema, LossReport()).flatten(schema, (), follow=True)


def _get_object(schema: Schema, keyword: str) -> dict[str, JsonValue]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _can_be_empty(schema: Schema) -> bool:
    values = schema.get("enum")
    return (
        schema.get(ALLOW_EMPTY_KEYWORD) is True
        or schema.get("minLength") == 0
        or schema.get("const") == ""
        or (isinstance(values, list) and "" in values)
    )


def _list_field_spellings(model: type[BaseModel], names: Mapping[str, str]) -> dict[str, str]:
    """Return the spellings that a model's fields add: the Python name, and further alias choices."""
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
    """Whether a model treats JSON text and Python values differently: it is strict or decodes bytes."""
    if isinstance(core_schema, dict):
        if core_schema.get("strict") is True or core_schema.get("val_json_bytes", "utf8") != "utf8":
            return True
        return any(_wants_json_text(value) for value in core_schema.values())
    return isinstance(core_schema, list | tuple) and any(_wants_json_text(item) for item in core_schema)
