"""Scorers for answers that a program can judge: text, numbers, JSON.

Each function returns a scorer; its options say how strict it is. A target may be a list: then each of its
members is a right answer. What is compared is the output as text; another type is compared as JSON.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from sessiontree import ConfigError
from sessiontree.bench.suite.plain_values import to_json_text
from sessiontree.bench.suite.suite import Attempt, Score, Scorer

Location: TypeAlias = Literal["begin", "end", "any", "exact"]
Which: TypeAlias = Literal["first", "last", "only"]
SHOWN_CHARS: Final = 2_000
"""Most letters of an answer that a score keeps."""
_LOCATIONS: Final[Mapping[Location, Callable[[str, str], bool]]] = {
    "begin": str.startswith,
    "end": str.endswith,
    "any": lambda text, wanted: wanted in text,
    "exact": lambda text, wanted: text == wanted,
}
_EDGES: Final = string.punctuation + string.whitespace
_NUMBER: Final = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<=\d)\.?|\.)(?:(?<=\.)\d+)?(?:[eE][-+]?\d+)?"
)
_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def exact(*, ignore_case: bool = False) -> Scorer:
    """Return a scorer that passes if the output is the target; white space around both does not count.

    Args:
        ignore_case: Whether capital letters equal small ones.
    """
    return _make_text_scorer("exact", "exact", str.strip, ignore_case=ignore_case)


def includes(*, ignore_case: bool = True) -> Scorer:
    """Return a scorer that passes if the output contains the target.

    Args:
        ignore_case: Whether capital letters equal small ones.
    """
    return _make_text_scorer("includes", "any", str.strip, ignore_case=ignore_case)


def match(location: Location = "end", *, ignore_case: bool = True) -> Scorer:
    """Return a scorer that passes if the output begins or ends with the target.

    White space and punctuation around both do not count: ``The answer is **Paris**.`` ends with ``Paris``.

    Args:
        location: ``begin``, ``end``, ``any`` or ``exact``.
        ignore_case: Whether capital letters equal small ones.

    Raises:
        ConfigError: the location is unknown.
    """
    if location not in _LOCATIONS:
        raise ConfigError(f"match has no location {location!r}; give one of {', '.join(_LOCATIONS)}")
    return _make_text_scorer("match", location, lambda text: text.strip(_EDGES), ignore_case=ignore_case)


def number(*, which: Which = "last", absolute: float = 0.0, relative: float = 1e-9) -> Scorer:
    """Return a scorer that passes if a number in the output is close to the target.

    ``1,234.5``, ``-3e5`` and ``.5`` are numbers; signs such as ``$`` and ``%`` around them do not count.

    Args:
        which: The ``first`` or ``last`` number; with ``only``, an output with several does not pass.
        absolute: How far the number may be from the target.
        relative: The same as a part of the target.

    Raises:
        ConfigError: the choice is unknown, or a distance is negative.
    """
    if which not in {"first", "last", "only"} or not (absolute >= 0 and relative >= 0):
        raise ConfigError(
            f"number takes which='first', 'last' or 'only' and distances from 0, not which={which!r}, "
            f"absolute={absolute!r}, relative={relative!r}"
        )

    def score(attempt: Attempt[Any]) -> Score:
        found = list(find_numbers(get_output_text(attempt)))
        if not found or (which == "only" and len(found) > 1):
            said = f"{len(found)} numbers, where one is wanted" if found else "no number"
            return Score(0.0, explanation=f"the output holds {said}")
        given = found[0] if which == "first" else found[-1]
        wanted = [_parse_number(each) for each in list_targets(attempt)]
        is_close = any(math.isclose(given, each, rel_tol=relative, abs_tol=absolute) for each in wanted)
        explanation = "" if is_close else f"wanted {' or '.join(f'{each:g}' for each in wanted)}"
        return Score(float(is_close), answer=f"{given:g}", explanation=explanation)

    return _name_scorer(score, "number")


def json_fields(*, fields: Iterable[str] | None = None, absolute: float = 0.0) -> Scorer:
    """Return a scorer that compares fields of a JSON object; the value is the share of fields that are right.

    It passes if all are. The output is the object, JSON text, or text whose last fenced block is JSON.
    Further fields of the output do not count. ``1`` equals ``1.0``, and neither equals ``true``.

    Args:
        fields: The fields that count; None = all of the target. Dots lead into objects: ``address.city``.
        absolute: How far numbers may be apart.

    Raises:
        ConfigError: no field is named, or the distance is negative.
    """
    chosen = None if fields is None else tuple(fields)
    if isinstance(fields, str) or chosen == () or not absolute >= 0:
        raise ConfigError(
            f"json_fields takes names of fields and a distance from 0, not fields={fields!r}, "
            f"absolute={absolute!r}"
        )

    def score(attempt: Attempt[Any]) -> Score:
        target = attempt.sample.target
        if not isinstance(target, Mapping):
            raise ConfigError(f"json_fields needs a target that is an object, not {target!r}")
        names = tuple(target) if chosen is None else chosen
        unknown = [name for name in names if _find_field(target, name) is _ABSENT]
        if unknown:
            raise ConfigError(f"json_fields compares {unknown[0]!r}, which the target {target!r} lacks")
        output = find_object(attempt.output)
        if output is None:
            return Score(0.0, passed=False, explanation="the output holds no JSON object")
        wrong = {
            name: (
                f"{_format_value(_find_field(output, name))}, wanted "
                f"{_format_value(_find_field(target, name))}"
            )
            for name in names
            if not are_equal(_find_field(output, name), _find_field(target, name), absolute)
        }
        return Score(
            1.0 if not names else 1 - len(wrong) / len(names),
            passed=not wrong,
            answer=to_json_text(output)[:SHOWN_CHARS],
            explanation="; ".join(f"{name}: {said}" for name, said in wrong.items()),
            metadata={"wrong": list(wrong)},
        )

    return _name_scorer(score, "json_fields")


def get_output_text(attempt: Attempt[Any]) -> str:
    """Return an attempt's output as text; another type becomes its JSON, and None an empty text."""
    output = getattr(attempt, "output", None)
    if output is None:
        return ""
    return output if isinstance(output, str) else to_json_text(output, str)


def list_targets(attempt: Attempt[Any]) -> list[Any]:
    """Return the right answers of an attempt's sample."""
    target = attempt.sample.target
    return list(target) if isinstance(target, list | tuple) else [target]


def find_numbers(text: str) -> Iterator[float]:
    """Yield the numbers in a text, in order."""
    for found in _NUMBER.finditer(text):
        written = found[0].replace(",", "")
        if any(letter.isdigit() for letter in written):
            yield float(written)


def find_object(output: Any) -> Mapping[str, Any] | None:
    """Return the JSON object that an output is or holds; None = none."""
    if isinstance(output, Mapping):
        return output
    if not isinstance(output, str):
        return None
    for text in (output, *reversed(_FENCED.findall(output))):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def are_equal(given: Any, wanted: Any, absolute: float = 0.0) -> bool:
    """Whether two JSON values are the same; numbers may be apart."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return given == wanted or abs(given - wanted) <= absolute
    if isinstance(given, Mapping) and isinstance(wanted, Mapping):
        return given.keys() == wanted.keys() and all(
            are_equal(given[name], wanted[name], absolute) for name in wanted
        )
    if isinstance(given, list | tuple) and isinstance(wanted, list | tuple):
        return len(given) == len(wanted) and all(
            are_equal(*pair, absolute) for pair in zip(given, wanted, strict=True)
        )
    return bool(given == wanted)


_ABSENT: Final = object()


def _find_field(value: Mapping[str, Any], name: str) -> Any:
    if name in value:
        return value[name]
    found: Any = value
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return _ABSENT
        found = found[part]
    return found


def _format_value(value: Any) -> str:
    return "missing" if value is _ABSENT else to_json_text(value, str)[:SHOWN_CHARS]


def _parse_number(target: Any) -> float:
    try:
        return float(str(target).replace(",", "")) if not isinstance(target, bool) else math.nan
    except ValueError:
        raise ConfigError(f"number needs a target that is a number, not {target!r}") from None


def _make_text_scorer(
    name: str, location: Location, trim: Callable[[str], str], *, ignore_case: bool
) -> Scorer:
    fits = _LOCATIONS[location]

    def normalize(text: str) -> str:
        trimmed = trim(text)
        return trimmed.casefold() if ignore_case else trimmed

    def score(attempt: Attempt[Any]) -> Score:
        output = get_output_text(attempt)
        wanted = [
            each if isinstance(each, str) else to_json_text(each, str) for each in list_targets(attempt)
        ]
        found = normalize(output)
        is_right = any(fits(found, normalize(each)) for each in wanted if normalize(each) or not found)
        return Score(float(is_right), answer=output[:SHOWN_CHARS])

    return _name_scorer(score, name)


def _name_scorer(scorer: Callable[[Attempt[Any]], Score], name: str) -> Scorer:
    scorer.__name__ = scorer.__qualname__ = name
    return scorer
