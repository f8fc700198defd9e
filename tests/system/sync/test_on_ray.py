"""What holds of sync trees holds on Ray: tests of this room, run once more over one sync runtime.

The runtime lives as long as this module, since the other modules see to it that the loop ends with a tree.
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessiontree import Runtime as AsyncRuntime
from sessiontree.sync import Runtime
from sessiontree.sync.portal import PORTAL
from tests.system.sync import test_interrupts, test_portal, test_prompts, test_tree
from tests.system.sync.conftest import left_over
from tests.system.sync.tree_fixtures import Opener

pytestmark = pytest.mark.slow

SHORT: tuple[Callable[..., None], ...] = (
    test_tree.test_program_without_await_runs_a_tree_from_start_to_receipt,
    test_tree.test_requests_are_answered_by_programs_that_look,
    test_tree.test_tree_is_taken_up_again,
    test_portal.test_each_caller_gets_its_own_reply,
    test_interrupts.test_stream_can_be_asked_on_after_an_interrupt,
    test_interrupts.test_interrupted_program_closes_its_tree,
)
"""What runs in `make test`: opening, asking, waiting, resuming and interrupting, each once."""
LONG: tuple[Callable[..., None], ...] = (
    test_tree.test_cancelling_gives_the_receipt_of_what_was_cancelled,
    test_tree.test_stream_yields_every_piece_and_then_has_the_whole,
    test_tree.test_progress_is_read_by_blocking_and_ends_with_the_tree,
    test_tree.test_error_in_the_block_closes_the_tree,
    test_tree.test_tree_closed_by_one_thread_ends_the_calls_of_others,
    test_portal.test_tree_is_used_from_the_thread_of_a_running_loop,
    test_prompts.test_while_nothing_blocks_a_request_waits_in_the_tree,
    test_prompts.test_request_answered_elsewhere_is_not_asked_any_more,
    test_prompts.test_approver_may_use_the_tree_and_be_asked_again_meanwhile,
    test_prompts.test_approver_may_close_the_tree,
    test_prompts.test_several_threads_block_and_each_request_is_asked_once,
    test_prompts.test_spawned_sessions_own_approver_is_asked_the_same_way,
    test_prompts.test_functions_of_a_callback_channel_are_asked_the_same_way,
    test_interrupts.test_message_survives_the_interrupt_of_its_send,
    test_interrupts.test_other_waits_end_and_leave_the_tree,
    test_interrupts.test_interrupted_map_cancels_its_children,
    test_interrupts.test_interrupted_call_runs_on,
    test_interrupts.test_interrupt_at_the_question_leaves_the_request_open,
)


@pytest.fixture(scope="module")
def runtime(ray_runtime: AsyncRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A sync runtime for the trees of all tests here, on the Ray of the run.

    Its state is next to the run's own directory: what appears in a directory on the way to a hidden place
    stays unseen by Workers that run already, and every test makes a workspace.
    """
    place = Path(tempfile.mkdtemp(prefix="state-", dir=tmp_path_factory.getbasetemp().parent))
    with Runtime(place / "state", backend="ray") as runtime:
        yield runtime
    assert left_over() == []
    shutil.rmtree(place)


@pytest.fixture
def open_tree(runtime: Runtime, tmp_path: Path) -> Opener:
    """Opens sync trees on Ray, in an empty workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Opener("ray", workspace, runtime.state_dir, shared=runtime)


@pytest.fixture(autouse=True)
def nothing_left(runtime: Runtime) -> Iterator[None]:
    """The runtime alone holds the portal when a test is over."""
    yield
    assert len(PORTAL._leases) == 1
    assert PORTAL._calls == 0


@pytest.mark.short(3)
@pytest.mark.parametrize(
    "story",
    [*SHORT, *(pytest.param(story, marks=pytest.mark.long) for story in LONG)],
    ids=lambda story: story.__name__.removeprefix("test_"),
)
def test_same_holds_on_ray(story: Callable[..., None], request: pytest.FixtureRequest) -> None:
    """The test itself, word for word; only what opens its trees is another."""
    story(**{name: request.getfixturevalue(name) for name in inspect.signature(story).parameters})


@pytest.mark.parametrize(
    "waiting", ["map", *(pytest.param(each, marks=pytest.mark.long) for each in ("call", "progress"))]
)
def test_waiting_calls_are_asked_on_their_own_thread(open_tree: Opener, waiting: str) -> None:
    """Three of the seven ways to wait for sessions: the loop, a child and a reader stand behind them."""
    test_prompts.test_every_call_that_waits_for_sessions_is_asked_on_its_own_thread(open_tree, waiting)
