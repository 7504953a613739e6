"""Buffers travel to real children, or are inherited by them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import link_targets
import numpy as np
import pytest
from link_trees import contents, descriptors, samples
from start_methods import SPAWN_SOAKS

from parllel.buffers import NamedTuple, buffer_leaves
from parllel.buffers.link import Link
from parllel.errors import RegistrationError, WorkerDiedError, WorkerTimeoutError
from parllel.system.processes.child import Child

LONG_S = 30.0

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def contents_of_lists(tree: Any) -> dict[str, Any]:
    """What the child read: lists at the leaves, which are no nodes here."""
    if not isinstance(tree, NamedTuple):
        return {"": tree}
    found = {}
    for name, value in tree._asdict().items():
        for path, leaf in contents_of_lists(value).items() if value is not None else ():
            found[f"{name}.{path}" if path else name] = leaf
    return found


class Partner:
    """A child that answers about buffers."""

    def __init__(self, method: str, inherited: Any = None) -> None:
        self.child = Child(link_targets.serve_buffers, inherited=inherited, start_method=method)
        self.link = Link(self.child.connection, self.child)
        if inherited is not None:
            self.link.adopt(inherited)

    def ask(self, what: str, buffer: Any, value: Any = None) -> Any:
        self.child.send_bytes(self.link.dumps((what, buffer, value)))
        return self.link.loads(self.link.receive(self.child, LONG_S, what))


@pytest.fixture
def partners() -> Iterator[list[Partner]]:
    started: list[Partner] = []
    yield started
    for partner in started:
        partner.child.kill()


@pytest.mark.parametrize("method", SPAWN_SOAKS)
@pytest.mark.parametrize("batches", [1, 3])
def test_child_reads_and_writes_registered_buffers(
    method: str, batches: int, partners: list[Partner]
) -> None:
    partners.append(Partner(method))
    partner = partners[0]
    tree = samples("local", batches)
    for node in [
        tree,
        tree.env,
        tree.agent.agent_info.value,
        tree[1:3, 0],
        tree.env.reward[[2, 0]],
    ]:
        assert contents_of_lists(partner.ask("read", node)) == contents(node)
    partner.ask("write", tree.env.reward[1:3, 0], [7, 8])
    partner.ask("write", tree.agent[3], 4)
    assert np.asarray(tree.env.reward)[1:3, 0].tolist() == [7, 8]
    assert np.asarray(tree.agent.agent_info.value)[3].tolist() == [4] * 3
    assert partner.ask("give back", tree.env.reward[1]) == tree.env.reward[1]
    assert contents(partner.ask("give back", {"a": tree.env[2]})["a"]) == contents(tree.env[2])


@pytest.mark.parametrize("method", SPAWN_SOAKS)
@pytest.mark.parametrize(
    ("storage", "what"),
    [
        ("managed", "tree"),
        *[("shared", what) for what in ("tree", "view", "leaf", "replay", "view of replay")],
    ],
)
def test_inherited_buffers_are_known_from_the_start(
    method: str, storage: str, what: str, partners: list[Partner]
) -> None:
    tree: Any = samples(storage, 3 if "replay" in what else 1)
    given = {"view": tree[:, 1:], "leaf": tree.env.reward, "view of replay": tree[:, 1:]}
    inherited = given.get(what, tree)
    partners.append(Partner(method, inherited))
    partner = partners[0]
    before = descriptors()
    for place in (0, slice(1, 3), (slice(None), 0), ([2, 0],)):
        assert contents_of_lists(partner.ask("read", inherited[place])) == contents(
            inherited[place]
        )
    partner.ask("write", inherited[2], 1)
    for _, leaf in buffer_leaves(inherited):
        assert (np.asarray(leaf)[2] == 1).all()
    if what != "leaf":
        reward = inherited.env.reward
        assert (
            contents_of_lists(partner.ask("read", reward[1]))[""] == np.asarray(reward)[1].tolist()
        )
        part = inherited.env[1]
        assert contents_of_lists(partner.ask("read", part)) == contents(part)
    assert descriptors() == before  # nothing was introduced: shared memory would have been refused


def test_unknown_name_is_the_childs_error_and_no_hang(partners: list[Partner]) -> None:
    partners.append(Partner("forkserver"))
    tree = samples("shared")
    partners[0].link.adopt(tree)
    with pytest.raises(RegistrationError, match="is unknown to process") as caught:
        partners[0].ask("read", tree.env)
    assert f"process {partners[0].child.pid}" in str(caught.value)


def test_two_children_share_one_tree(partners: list[Partner]) -> None:
    tree = samples("local")
    for _ in range(2):
        partners.append(Partner("fork"))
    first, second = partners
    first.ask("write", tree.env.reward[0], 3)
    second.ask("write", tree.env.reward[1], 4)
    assert first.ask("read", tree.env.reward[0:2]) == [[3] * 3, [4] * 3]
    assert second.ask("read", tree.env.reward[0:2]) == [[3] * 3, [4] * 3]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no descriptors")
@pytest.mark.parametrize(
    ("end", "error", "timeout_s", "text"),
    [
        ("stop", WorkerTimeoutError, 0.3, r"did not answer within 0.3 s while asked"),
        ("exit", WorkerDiedError, LONG_S, r"exited with code 3 while asked"),
        ("leave a grandchild", WorkerDiedError, LONG_S, r"exited with code 3 while asked"),
    ],
)
def test_child_that_ends_in_the_middle_of_an_introduction_is_noticed(
    end: str, error: type[Exception], timeout_s: float, text: str
) -> None:
    child = Child(link_targets.introduce_half, (end,))
    try:
        with pytest.raises(error, match=text):
            Link(child.connection, child).receive(child, timeout_s, "while asked")
    finally:
        child.kill()
