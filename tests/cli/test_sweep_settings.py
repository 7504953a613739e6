"""KEY=VALUES arguments and the settings of each run."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.cli.sweeps.settings import (
    all_settings,
    name_of,
    parse_pairs,
    run_settings,
    split_values,
)


@dataclass(frozen=True)
class Learning:
    rate: float = 1e-3
    limit: float | None = None


@dataclass(frozen=True)
class Config:
    seed: int = 0
    name: str = "a"
    sizes: tuple[int, ...] = (8,)
    threads: int = 1
    learning: Learning = field(default_factory=Learning)

    def __post_init__(self):
        if self.seed > 99:
            raise RuntimeError("seed: expected at most 99")


integers = st.integers(-1000, 1000)


@given(first=integers, length=st.integers(0, 40))
def test_a_range_holds_both_ends(first, length):
    found = split_values("seed", f"{first}-{first + length}")
    assert [int(text) for text in found] == list(range(first, first + length + 1))


@given(first=integers, missing=st.integers(1, 1000))
def test_an_empty_range_is_refused(first, missing):
    with pytest.raises(ValueError, match=re.escape(f"seed: the range {first}-{first - missing}")):
        split_values("seed", f"1,{first}-{first - missing}")


@given(st.lists(st.one_of(integers.map(str), st.floats(0, 1).map(repr)), min_size=1))
def test_values_are_separated_by_commas(values):
    assert split_values("x", ",".join(values)) == values


@given(st.lists(st.lists(integers, min_size=1, max_size=4), min_size=1, max_size=4))
def test_commas_in_brackets_separate_nothing(lists):
    assert split_values("sizes", ",".join(str(values) for values in lists)) == [
        str(values) for values in lists
    ]


@pytest.mark.parametrize("text", ["", "1,,2", ",1", "1,", " , "])
def test_an_empty_value_is_refused(text):
    with pytest.raises(ValueError, match="x: expected values separated by commas"):
        split_values("x", text)


def test_a_range_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="more than 100,000 values"):
        split_values("seed", "0-1000000000000")
    with pytest.raises(ValueError, match="expected at most 100,000 runs, got 1,000,000 comb"):
        all_settings(Config(), {"learning.rate": "0-999", "threads": "0-999"})


@given(
    seeds=st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True),
    rates=st.lists(st.floats(1e-6, 1), min_size=1, max_size=4, unique=True),
)
def test_every_combination_is_one_run(seeds, rates):
    pairs = {
        "learning.rate": ",".join(map(repr, rates)),
        "seed": ",".join(map(str, seeds)),
    }
    runs = all_settings(Config(), pairs)
    assert [(run.values["learning.rate"], run.values["seed"]) for run in runs] == list(
        itertools.product(rates, seeds)
    )
    assert [run.config["learning"]["rate"] for run in runs] == [
        run.values["learning.rate"] for run in runs
    ]
    assert len({run.name for run in runs}) == len(runs)
    assert all(run.group == {"learning.rate": run.values["learning.rate"]} for run in runs)


def test_names_are_those_of_values():
    (run,) = all_settings(Config(), {"learning.rate": "1e-4", "sizes": "[64,64]", "seed": "3"})
    assert run.name == "learning.rate=0.0001,sizes=[64,64],seed=3"
    (run,) = all_settings(Config(), {"name": "a/b", "learning.limit": "none"}, {"threads": "2"})
    assert run.name == "name=a%2Fb,learning.limit=null"
    assert run.config["threads"] == 2
    assert run_settings(Config(), {"seed": "1"}, name="trial-1").name == "trial-1"


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_different_values_have_different_names_that_file_systems_accept(texts):
    one, other = (name_of({"name": text}) for text in texts)
    assert one != other
    assert len(one.encode()) <= 200
    assert "/" not in one


def test_the_values_of_a_text_are_no_range():
    assert [run.values for run in all_settings(Config(), {"name": "1-3,b"})] == [
        {"name": "1-3"},
        {"name": "b"},
    ]


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ({"learning.rat": "1"}, "did you mean 'learning.rate'"),
        ({"lr": "1"}, "lr"),
        ({"learning.rate": "1,fast"}, "learning.rate: expected a number, got 'fast'"),
        ({"seed": "1-3,2"}, "seed: the list 1-3,2 names the value 2 twice"),
        ({"learning.rate": "1e-4,0.0001"}, "learning.rate: the list 1e-4,0.0001 names the value"),
        ({"seed": "98-100"}, "seed: expected at most 99"),
    ],
)
def test_mistakes_are_named(pairs, error):
    with pytest.raises(ValueError, match=re.escape(error)):
        all_settings(Config(), pairs)


def test_pairs():
    assert parse_pairs(["a.b=1,2", "c=x=y"]) == {"a.b": "1,2", "c": "x=y"}
    with pytest.raises(ValueError, match="expected at least one KEY=VALUES"):
        parse_pairs([])
    for wrong in ("=1", "a"):
        with pytest.raises(ValueError, match="expected KEY=VALUES, such as seed=0-4, got"):
            parse_pairs([wrong])
    with pytest.raises(ValueError, match="seed: expected one list of values, got '1' and '2'"):
        parse_pairs(["seed=1", "seed=2"])
