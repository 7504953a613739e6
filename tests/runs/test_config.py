from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.runs import change_config, config_values, read_config


@dataclass(frozen=True)
class Ppo:
    learning_rate: float = 3e-4
    epochs: int = 4
    kl_limit: float | None = None


@dataclass(frozen=True)
class Config:
    seed: int = 0
    parallel: bool = False
    name: str = "run"
    folder: Path = Path("runs")
    memory: Literal["lstm", "gru", "none"] = "lstm"
    sizes: tuple[int, ...] = (64, 64)
    pair: tuple[int, str] = (1, "one")
    rates: list[float] = field(default_factory=list)
    shape: Sequence[int] = (84, 84)
    ppo: Ppo = Ppo(learning_rate=1e-3)
    other: Ppo | None = None
    weights: dict[str, float] = field(default_factory=lambda: {"a": 1.0, "b": 2.0})
    options: dict[str, Any] = field(default_factory=lambda: {"depth": 3, "on": True, "extra": None})
    limit: int | str = "none at all"
    number: float | int = 1


DEFAULTS = {
    "seed": 0,
    "rate": 0.5,
    "name": "run",
    "sizes": (64, 64),
    "list": [1.0],
    "anything": None,
    "ppo": {"learning_rate": 1e-3, "epochs": 4},
    "open": {},
}

CONFIGS = st.builds(
    Config,
    seed=st.integers(),
    parallel=st.booleans(),
    name=st.text(),
    folder=st.sampled_from([Path("runs"), Path("/a/b")]),
    memory=st.sampled_from(["lstm", "gru", "none"]),
    sizes=st.lists(st.integers(), max_size=3).map(tuple),
    pair=st.tuples(st.integers(), st.text()),
    rates=st.lists(st.floats(allow_nan=False), max_size=3),
    shape=st.lists(st.integers(), max_size=3).map(tuple),
    ppo=st.builds(Ppo, st.floats(allow_nan=False), st.integers(), st.none() | st.floats(0, 1)),
    other=st.none() | st.builds(Ppo),
    weights=st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
    options=st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=3),
    limit=st.integers() | st.text(),
    number=st.integers() | st.floats(allow_nan=False),
)


@given(config=CONFIGS)
def test_a_config_comes_back_from_json(config):
    found = read_config(Config, json.loads(json.dumps(config_values(config))))
    assert found == config
    # 1 == 1.0 == True: types count as well.
    assert repr(found) == repr(config)


def test_values_are_what_json_knows():
    values = config_values(
        Config(folder=Path("a") / "b", seed=np.int64(3), rates=[np.float32(0.5)])
    )
    assert values["folder"] == "a/b"
    assert (type(values["seed"]), values["rates"]) == (int, [0.5])
    assert values["sizes"] == [64, 64]
    assert values["ppo"] == {"learning_rate": 1e-3, "epochs": 4, "kl_limit": None}
    assert config_values({"T": 4, "sizes": (1, 2)}) == {"T": 4, "sizes": [1, 2]}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"a": {"b": object()}}, r"^a\.b: expected numbers, strings, .* got <object"),
        ({"a": [1, {2}]}, r"^a\[1\]: expected numbers, .* got \{2\}"),
        ({"a": {1: 2}}, "^a: keys must be strings, got 1"),
        ({1: 2}, "^config: keys must be strings, got 1"),
        ([1], r"^config: expected a dataclass object or a dict, got \[1\]"),
        (Config, "^config: expected a dataclass object or a dict, got <class"),
    ],
)
def test_what_json_does_not_know_is_named(config, message):
    with pytest.raises(TypeError, match=message):
        config_values(config)


def test_what_is_not_given_keeps_its_default():
    # Of the group within: the default of the whole, not of the group's class.
    found = read_config(Config, {"seed": 3, "ppo": {"epochs": 9}})
    assert found == replace(Config(), seed=3, ppo=Ppo(1e-3, 9))
    assert read_config(Config, {}) == Config()
    assert read_config(DEFAULTS, {"ppo": {"epochs": 9}}) == {
        **DEFAULTS,
        "ppo": {"learning_rate": 1e-3, "epochs": 9},
    }


def test_an_int_is_a_float_where_one_is_expected():
    rate = read_config(Config, {"ppo": {"learning_rate": 1}}).ppo.learning_rate
    assert (rate, type(rate)) == (1.0, float)
    assert type(read_config(DEFAULTS, {"rate": 1})["rate"]) is float


def test_a_dict_of_defaults_says_what_is_expected():
    values = {"sizes": [1, 2, 3], "list": [], "anything": {"deep": [1]}, "open": {"new": "key"}}
    assert read_config(DEFAULTS, values) == {**DEFAULTS, **values, "sizes": (1, 2, 3)}
    with pytest.raises(TypeError, match=r"^sizes\[1\]: expected a whole number, got 'a'"):
        read_config(DEFAULTS, {"sizes": [1, "a"]})
    with pytest.raises(TypeError, match=r"^ppo\.epochs: expected a whole number, got 1\.5"):
        read_config(DEFAULTS, {"ppo": {"epochs": 1.5}})


def test_the_defaults_are_not_shared():
    found = read_config(DEFAULTS, {})
    found["ppo"]["epochs"] = 99
    found["list"].append(2.0)
    assert DEFAULTS["ppo"]["epochs"] == 4
    assert DEFAULTS["list"] == [1.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sede": 1}, r"^unknown key 'sede'; did you mean 'seed'\?"),
        (
            {"ppo": {"lerning_rate": 1}},
            r"^unknown key 'ppo.lerning_rate'; did you mean 'ppo.learning_rate'\?",
        ),
        ({"learning_rate": 1}, r"^unknown key 'learning_rate'; did you mean 'ppo.learning_rate'\?"),
        (
            {"ppo": {"zzz": 1}},
            r"^unknown key 'ppo.zzz'; expected one of \['learning_rate', 'epochs'",
        ),
    ],
)
@pytest.mark.parametrize("kind", [Config, DEFAULTS], ids=["dataclass", "dict"])
def test_unknown_keys_are_refused(kind, values, message):
    with pytest.raises(ValueError, match=message):
        read_config(kind, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": 1.5}, r"^seed: expected a whole number, got 1\.5"),
        ({"seed": float("inf")}, "^seed: expected a whole number, got inf"),
        ({"seed": True}, "^seed: expected a whole number, got True"),
        ({"seed": "1"}, "^seed: expected a whole number, got '1'"),
        ({"seed": None}, "^seed: expected a whole number, got None"),
        ({"parallel": 1}, "^parallel: expected true or false, got 1"),
        ({"name": 3}, "^name: expected a string, got 3"),
        ({"folder": 3}, "^folder: expected a path, got 3"),
        ({"ppo": {"learning_rate": True}}, r"^ppo\.learning_rate: expected a number, got True"),
        ({"ppo": {"kl_limit": "x"}}, r"^ppo\.kl_limit: expected a number, got 'x'"),
        ({"ppo": 3}, "^ppo: expected a dict, got 3"),
        ({"sizes": 64}, "^sizes: expected a list, got 64"),
        ({"sizes": "64"}, "^sizes: expected a list, got '64'"),
        ({"sizes": [1, 2.5]}, r"^sizes\[1\]: expected a whole number, got 2\.5"),
        ({"weights": {"a": "x"}}, r"^weights\.a: expected a number, got 'x'"),
    ],
)
def test_other_types_are_refused(values, message):
    with pytest.raises(TypeError, match=message):
        read_config(Config, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"memory": "lstn"},
            r"^memory: expected one of \['lstm', .*got 'lstn'; did you mean 'lstm'\?",
        ),
        ({"memory": 3}, r"^memory: expected one of \['lstm', 'gru', 'none'\], got 3"),
        ({"pair": [1]}, r"^pair: expected 2 values, got 1: \[1\]"),
        ({"limit": 1.5}, "^limit: expected a whole number, got 1.5; or limit: expected a string"),
    ],
)
def test_other_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        read_config(Config, values)


def test_a_value_without_default_must_be_given():
    @dataclass
    class Needy:
        seed: int
        made: int = field(default=3, init=False)

    assert read_config(Needy, {"seed": 1}).seed == 1
    assert config_values(Needy(1)) == {"seed": 1}
    with pytest.raises(ValueError, match=r"^seed: expected a value, as it has no default"):
        read_config(Needy, {})
    with pytest.raises(ValueError, match=r"^unknown key 'made'"):
        read_config(Needy, {"made": 1})


def test_kinds_that_cannot_be_read():
    @dataclass
    class Strange:
        a: complex = 0j
        b: dict[int, int] = field(default_factory=dict)
        c: Mapping[str, int] = field(default_factory=dict)

    assert read_config(Strange, {"c": {"x": 1}}).c == {"x": 1}
    with pytest.raises(TypeError, match=r"^a: .*complex.* cannot be read from JSON"):
        read_config(Strange, {"a": 1})
    with pytest.raises(
        TypeError, match=r"^b: expected a dict type with keys of type str, got .*int"
    ):
        read_config(Strange, {"b": {}})
    with pytest.raises(TypeError, match=r"^kind: expected a dataclass or a dict of defaults"):
        read_config(int, {})
    with pytest.raises(TypeError, match=r"^config: expected a dict, got 3"):
        read_config(Config, 3)


def test_a_float_without_fraction_is_a_whole_number():
    config = read_config(Config, {"seed": 1e6, "sizes": [64.0], "number": 3.0})
    values = (config.seed, *config.sizes, config.number)
    assert repr(values) == "(1000000, 64, 3.0)"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ppo.lr", "ppo.learning_rate"),
        ("lr", "ppo.learning_rate"),
        ("ppo.learn", "ppo.learning_rate"),
        ("ppo.lern_rate", "ppo.learning_rate"),
        ("pp.lr", "ppo"),
    ],
)
@pytest.mark.parametrize("kind", [Config(), DEFAULTS], ids=["dataclass", "dict"])
def test_a_short_name_is_understood(kind, written, meant):
    with pytest.raises(ValueError, match=f"unknown key '.*'; did you mean '{meant}'"):
        change_config(kind, {written: "1"})


# ---------------------------------------------------------------------- changes


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("seed", "12", 12),
        ("seed", "1_000", 1000),
        ("seed", "1e6", 1_000_000),
        ("seed", "-2.0", -2),
        ("number", "1e6", 1e6),
        ("limit", "1e3", 1000),
        ("parallel", "true", True),
        ("parallel", "No", False),
        ("name", "12", "12"),
        ("name", "none", "none"),
        ("folder", "a/b", Path("a/b")),
        ("memory", "none", "none"),
        ("sizes", "[32]", (32,)),
        ("sizes", "(32, 16,)", (32, 16)),
        ("sizes", "32,16", (32, 16)),
        ("sizes", "[]", ()),
        ("pair", "[2, two]", (2, "two")),
        ("rates", "[1e-3, 2]", [1e-3, 2.0]),
        ("ppo.learning_rate", "1e-4", 1e-4),
        ("ppo.kl_limit", "none", None),
        ("ppo.kl_limit", "0.1", 0.1),
        ("other", "null", None),
        ("weights.a", "3", 3.0),
        ("weights", '{"c": 3}', {"c": 3.0}),
        ("options.depth", "5", 5),
        ("options.on", "false", False),
        ("options.extra", "[1, 2]", [1, 2]),
        ("options.extra", "text", "text"),
        ("limit", "5", 5),
        ("limit", "five", "five"),
    ],
)
def test_text_is_read_as_what_is_expected(path, text, value):
    config = Config()
    changed = change_config(config, {path: text})
    found = changed
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert (found, type(found)) == (value, type(value))
    assert config == Config()  # frozen or not, the old one is as it was
    # Nothing else has changed.
    top = path.split(".")[0]
    before, after = config_values(config), config_values(changed)
    assert {n for n in before if before[n] != after[n]} <= {top}


def test_several_changes_are_made_at_once():
    @dataclass(frozen=True)
    class Careful:
        low: int = 0
        high: int = 1

        def __post_init__(self):
            if self.low >= self.high:
                raise ValueError("low must be less than high")

    assert change_config(Careful(), {"low": 5, "high": "6"}) == Careful(5, 6)
    with pytest.raises(ValueError, match="low must be less than high"):
        change_config(Careful(), {"low": 5})


def test_a_group_that_was_none_gets_its_defaults():
    assert change_config(Config(), {"other.epochs": "7"}).other == Ppo(epochs=7)


def test_values_may_be_what_they_are():
    changed = change_config(Config(), {"ppo": Ppo(0.1), "sizes": [1], "weights": {"c": 1}})
    assert (changed.ppo, changed.sizes, changed.weights) == (Ppo(0.1), (1,), {"c": 1.0})
    assert change_config(Config(), {"ppo": {"epochs": 1}}).ppo == Ppo(1e-3, 1)


def test_a_dict_is_changed_as_a_copy():
    changed = change_config(DEFAULTS, {"ppo.learning_rate": "1e-2", "sizes": "[1]", "seed": 4})
    expected = {**DEFAULTS, "seed": 4, "sizes": (1,), "ppo": {"learning_rate": 0.01, "epochs": 4}}
    assert changed == expected
    assert DEFAULTS["ppo"]["learning_rate"] == 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ppo.lerning_rate": 1},
            r"^unknown key 'ppo.lerning_rate'; did you mean 'ppo.learning_rate'",
        ),
        ({"epochs": 1}, r"^unknown key 'epochs'; did you mean 'ppo.epochs'"),
        ({"weights.c": "1"}, r"^unknown key 'weights.c'; expected one of \['a', 'b'\]"),
        ({"options.dept": "1"}, r"^unknown key 'options.dept'; did you mean 'options.depth'"),
        ({"seed.x": "1"}, "^unknown key 'seed.x': 'seed' is a single value"),
        ({"sizes.0": "1"}, "^unknown key 'sizes.0': 'sizes' is a single value"),
        ({"seed": "1.5"}, r"^seed: expected a whole number, got '1\.5'"),
        ({"seed": "none"}, "^seed: expected a whole number, got 'none'"),
        ({"parallel": "maybe"}, "^parallel: expected true or false, got 'maybe'"),
        ({"ppo.learning_rate": "fast"}, r"^ppo\.learning_rate: expected a number, got 'fast'"),
        ({"sizes": "[1, x]"}, r"^sizes\[1\]: expected a whole number, got 'x'"),
        ({"memory": "gro"}, r"^memory: expected one of .* got 'gro'; did you mean 'gru'\?"),
        ({"options.depth": "x"}, r"^options\.depth: expected a whole number, got 'x'"),
        (
            {"ppo": {"epochs": 1}, "ppo.epochs": 2},
            r"^ppo\.epochs: 'ppo' as a whole is also changed",
        ),
        ({"ppo.epochs": 2, "ppo": {"epochs": 1}}, "^ppo: values below it are also changed"),
    ],
)
def test_wrong_changes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        change_config(Config(), changes)


def test_only_configs_can_be_changed():
    with pytest.raises(TypeError, match=r"^config: expected a dataclass object or a dict, got 3"):
        change_config(3, {})
    with pytest.raises(TypeError, match=r"^ppo: expected a dict, got 'x'"):
        change_config(Config(), {"ppo": "x"})


@given(learning_rate=st.floats(allow_nan=False), seed=st.integers(), on=st.booleans())
def test_what_python_prints_is_read_back(learning_rate, seed, on):
    texts = {"ppo.learning_rate": str(learning_rate), "seed": str(seed), "parallel": str(on)}
    expected = replace(Config(), seed=seed, parallel=on, ppo=Ppo(learning_rate))
    assert change_config(Config(), texts) == expected
