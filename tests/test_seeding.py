from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.seeding import Seeds, seeds_named

NAMES = ["agent", "environments", "model", "algorithm", "décorrélation"]


@given(entropy=st.integers(0, 2**128), names=st.permutations(NAMES))
def test_a_seed_depends_on_the_name_alone(entropy, names):
    seeds = Seeds(entropy)
    found = {name: seeds.integer(name) for name in names}
    assert found == {name: Seeds(entropy).integer(name) for name in NAMES}
    assert len(set(found.values())) == len(NAMES)


def test_any_text_is_a_name():
    names = ["\ud800", "\udfff", "\ufffd", "?"]
    assert len({Seeds(0).integer(name) for name in names}) == len(names)


def test_other_entropy_gives_other_seeds():
    assert len({Seeds(entropy).integer("agent") for entropy in range(100)}) == 100


def test_all_faces_of_a_seed_are_of_one_sequence():
    sequence = Seeds(5).sequence("agent")
    assert Seeds(5).integer("agent") == int(sequence.generate_state(1)[0])
    expected = np.random.default_rng(sequence).random(4)
    np.testing.assert_array_equal(Seeds(5).generator("agent").random(4), expected)


def test_seeds_stay_what_they_were_in_earlier_versions():
    # Runs that were published must be repeatable.
    found = [Seeds(0).integer(name) for name in NAMES]
    assert found == [2531836003, 78992558, 2228409280, 320326156, 1781069187]


@pytest.mark.parametrize("method", ["sequence", "integer", "generator"])
def test_a_name_is_given_out_once(method):
    seeds = Seeds(0)
    getattr(seeds, method)("agent")
    with pytest.raises(
        ValueError, match=r"seed 'agent' was requested twice; .* needs a new Seeds\(0\)"
    ):
        seeds.spawn("agent", 2)


def test_spawned_sequences_are_independent():
    words = [tuple(seed.generate_state(4)) for seed in Seeds(0).spawn("environments", 500)]
    assert len(set(words)) == 500
    first = [int(seed.generate_state(1)[0]) for seed in Seeds(0).spawn("environments", 3)]
    more = [int(seed.generate_state(1)[0]) for seed in Seeds(0).spawn("environments", 30)]
    assert more[:3] == first  # another environment changes nothing for those before it
    draws = np.array([np.random.default_rng(seed).random(200) for seed in Seeds(1).spawn("e", 50)])
    correlation = np.corrcoef(draws)[~np.eye(50, dtype=bool)]
    assert abs(correlation).max() < 0.4


@pytest.mark.parametrize("n", [-1, 2.0, "2", None, True])
def test_a_number_that_is_none_is_refused_and_takes_no_name(n):
    seeds = Seeds(0)
    with pytest.raises(ValueError, match="Seeds: 'environments': n: expected an int of at least 0"):
        seeds.spawn("environments", n)
    assert len(seeds.spawn("environments", np.int64(2))) == 2
    assert seeds.spawn("nothing", 0) == []


def test_names_that_begin_alike_are_independent():
    one, two = Seeds(0).spawn("a", 2)
    other = Seeds(0).sequence("a0")
    words = {tuple(seed.generate_state(4)) for seed in (one, two, other, Seeds(0).sequence("a"))}
    assert len(words) == 4


def test_save_and_load(tmp_path):
    seeds = Seeds(2**100 + 1)
    given = {name: seeds.integer(name) for name in NAMES}
    seeds.save(tmp_path / "seeds.json")
    assert json.loads((tmp_path / "seeds.json").read_text()) == {
        "entropy": 2**100 + 1,
        "given": given,
    }
    loaded = Seeds.load(tmp_path / "seeds.json")
    assert {name: loaded.integer(name) for name in NAMES} == given


def test_entropy_of_the_system_can_be_read_back():
    seeds = Seeds()
    assert seeds.entropy != Seeds().entropy
    assert Seeds(seeds.entropy).integer("agent") == seeds.integer("agent")


@pytest.mark.parametrize("entropy", ["0", 1.0, True, [1]])
def test_entropy_has_to_be_an_int(entropy):
    with pytest.raises(TypeError, match="entropy must be an int or None"):
        Seeds(entropy)


def test_entropy_must_not_be_negative():
    with pytest.raises(ValueError, match="entropy must not be negative, got -1"):
        Seeds(-1)


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_name_has_to_be_text(name):
    with pytest.raises(TypeError, match="a name must be a non-empty string"):
        Seeds(0).sequence(name)


def test_ints_of_numpy_are_ints():
    assert Seeds(np.uint32(7)).integer("agent") == Seeds(7).integer("agent")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"entropy": "x"}', "null", '{"entropy": -1}'])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "seeds.json").write_text(text)
    with pytest.raises(ValueError, match=r"not JSON|not a saved state|must not be negative"):
        Seeds.load(tmp_path / "seeds.json")


def test_seeds_of_a_command_line():
    assert seeds_named("0-2, 5,9-9,20:22") == [0, 1, 2, 5, 9, 20, 21]


@pytest.mark.parametrize(
    "text",
    ["", "a", "-1", "3:", ":3", "3:3", "5:2", "5-2", "1,,2", "1.5", "0:1000001", "0-1,2-1000001"],
)
def test_other_seeds_are_refused(text):
    with pytest.raises(ValueError, match=r"expected (seeds such as|at most 1,000,000 seeds)"):
        seeds_named(text)
