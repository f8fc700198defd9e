"""Python files parsed by several threads at once: what is found does not depend on who else parses."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sessiontree.survey.lines import lines_of
from sessiontree.survey.python_source import PythonSource, parse_python
from sessiontree.survey.syntax import masked

THREADS = 4
Parse = Callable[[str], PythonSource | str]


def parsed(text: str) -> PythonSource | str:
    """Return what a text's syntax tree says."""
    return parse_python(text, lines_of(masked(text, "python")))


@pytest.fixture
def interrupted_parser() -> Iterator[None]:
    """Let other threads in while a tree is built: the collector runs often, and gives way each time."""

    def give_way(phase: str, info: dict[str, int]) -> None:
        os.sched_yield()

    before = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(100)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(give_way)


def threads_agree(parse: Parse, texts: list[str]) -> None:
    """Parsing many texts in many threads gives what parsing them one after another gives."""
    alone = [parse(text) for text in texts]
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(parse, texts * 2)) == alone * 2


def test_threads_that_parse_at_once_agree(python_files: list[Path], interrupted_parser: None) -> None:
    """No file is lost because another one was parsed at the same time."""
    texts = [path.read_text() for path in python_files[:60]]
    threads_agree(parsed, texts)


def test_thread_property_notices_a_shared_place(python_files: list[Path]) -> None:
    """A parser that keeps its text where other threads put theirs is found."""
    place: dict[str, str] = {}

    def careless(text: str) -> PythonSource | str:
        place["text"] = text
        os.sched_yield()
        return parsed(place["text"])

    with pytest.raises(AssertionError):
        threads_agree(careless, [path.read_text() for path in python_files[:60]])
