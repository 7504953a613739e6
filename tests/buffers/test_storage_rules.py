"""Rules by path: which fits, and that one which fits nothing is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parllel.buffers import StorageRules, add_fields, allocate
from parllel.types import BatchSpec

SPEC = BatchSpec(T=2, B=3)
TREE = {"env": {"reward": 0.0, "observation": 0.0}, "agent": {"action": 0}}


def test_the_last_rule_that_fits_wins_over_the_default() -> None:
    rules = StorageRules({"env.*": "managed", "*.reward": "shared"}, "local")
    assert rules.at("env.observation") == "managed"
    assert rules.at("env.reward") == "shared"
    assert rules.at("agent.action") == "local"
    assert StorageRules({}, "managed").at("anything") == "managed"
    assert StorageRules("shared").at("anything") == "shared"
    assert StorageRules("shared", "managed").at("anything") == "shared"
    assert StorageRules(None, "managed").at("anything") == "managed"
    assert StorageRules().at("anything") == "local"
    assert StorageRules({"env.*": "managed"}).at("env.reward") == "managed"


@pytest.mark.parametrize(
    ("rule", "nearest"),
    [
        ("env.rewards", "env.reward"),
        ("agent.acton", "agent.action"),
        ("evn.observation*", "env.observation"),
        ("Agent.*", "agent.action"),
    ],
)
def test_a_rule_that_fits_nothing_is_refused_with_the_nearest_path(rule: str, nearest: str) -> None:
    message = rf"storage: the rule '{rule}' matches no path in the buffer; the closest path is '{nearest}'"
    rules: Any = {"env.*": "managed", rule: "shared"}
    with pytest.raises(ValueError, match=message.replace("*", r"\*")):
        allocate(TREE, SPEC, storage=rules)


def test_a_rule_may_be_overruled_by_a_later_one() -> None:
    rules: Any = {"env.reward": "shared", "*": "managed"}
    assert allocate(TREE, SPEC, storage=rules).env.reward.storage == "managed"


def test_rules_for_several_calls_are_checked_in_the_end() -> None:
    rules = StorageRules({"agent.value": "managed", "env.*": "shared", "top": "local"})
    tree = allocate(TREE, SPEC, storage=rules)
    tree = add_fields(tree, {"agent.value": np.zeros(2)}, SPEC, storage=rules)
    assert tree.agent.value.storage == "managed"
    assert tree.env.reward.storage == "shared"
    with pytest.raises(ValueError, match="the rule 'top' matches no path"):
        rules.check_used()
    add_fields(tree, {"top": 1}, SPEC, storage=rules)
    rules.check_used()


def test_added_fields_check_a_mapping_as_a_whole() -> None:
    tree = allocate(TREE, SPEC)
    fields = {"agent.value": 0.0, "env.extra": 0.0}
    rules: Any = {"agent.*": "managed", "env.extra": "shared"}
    more = add_fields(tree, fields, SPEC, storage=rules)
    assert (more.agent.value.storage, more.env.extra.storage) == ("managed", "shared")
    with pytest.raises(
        ValueError, match=r"'env\.reward' matches no path in the buffer; the closest path is"
    ):
        add_fields(tree, fields, SPEC, storage={"env.reward": "shared"})


def test_a_buffer_without_paths_says_so() -> None:
    with pytest.raises(
        ValueError, match=r"the rule 'a' matches no path in the buffer; the buffer has no paths"
    ):
        allocate(None, SPEC, storage={"a": "shared"})
    assert allocate(None, SPEC) is None


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("shed", "storage: the default: expected one of .*'local'.*, got 'shed'"),
        ({"env.*": "shed"}, r"storage: env\.\*: expected one of .*, got 'shed'"),
        ({"env.*": "shed", "*": "local"}, r"storage: env\.\*: expected one of .*, got 'shed'"),
    ],
)
def test_unknown_storages_are_refused(rules: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StorageRules(rules)
