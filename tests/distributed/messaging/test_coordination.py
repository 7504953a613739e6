"""Ready-made ways to direct agents, against their definitions and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import BOX

from parllel.distributed.messaging import (
    Agent,
    ExecutionMode,
    KafkaBroker,
    KafkaMultiAgentEnv,
    PriceCoordinator,
    broadcast,
    set_points,
    split,
)
from parllel.envs.states import env_state, load_env_state

MODES = [ExecutionMode.SYNC, ExecutionMode.ASYNC]


class Leaf(Agent):
    """Does what it is told."""

    def observe(self, global_state):
        return None


class Supplier(Leaf):
    """Chooses the quantity at which its profit, price * q - cost * q ** 2 / 2, is largest."""

    def __init__(self, agent_id, cost, **settings):
        super().__init__(agent_id, **settings)
        self.cost = cost

    def decide(self, observation, action):
        return action / self.cost

    def compile_info(self, infos):
        return {"quantity": float(self._last_action), "reward": -1.0}


@pytest.fixture
def make_env():
    """A function that makes an environment of a root's tree; it is closed."""
    made = []

    def make(mode, root, *others):
        agents = {agent.agent_id: agent for agent in [root, *others]}
        for agent in agents.values():
            agent.execution_mode = mode
        broker = KafkaBroker() if mode is ExecutionMode.ASYNC else None
        made.append(KafkaMultiAgentEnv(agents, [root.agent_id], broker))
        if broker is not None:
            made.append(broker)
        return made[-1] if broker is None else made[-2]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("protocol", "action", "expected"),
    [
        (broadcast, 0.5, {"b": 0.5, "a": 0.5}),
        (set_points, [1.0, 2.0], {"b": 1.0, "a": 2.0}),
        (split, 3.0, {"b": 1.5, "a": 1.5}),
        (partial(split, weights={"a": 1, "b": 3}), 2.0, {"b": 1.5, "a": 0.5}),
        (lambda action, names: {name: action + len(name) for name in names}, 1, {"b": 2, "a": 2}),
    ],
)
def test_the_leaves_get_what_the_protocol_makes_of_the_action(
    make_env, mode, protocol, action, expected
):
    # Their order is that of the subordinates, not the alphabet's.
    leaves = {name: Leaf(name) for name in ("b", "a")}
    env = make_env(mode, Leaf("root", subordinates=leaves, protocol=protocol), *leaves.values())
    env.reset()
    env.step({"root": action})
    assert env.get_global_state()["actions"] == expected


@given(
    st.dictionaries(st.text(max_size=3), st.floats(0.0, 1e6), min_size=1),
    st.floats(-1e6, 1e6),
)
def test_shares_add_up_and_are_in_proportion(weights, total):
    if not math.fsum(weights.values()) > 0:
        with pytest.raises(ValueError, match="not all 0"):
            split(total, list(weights), weights)
        return
    shares = split(total, list(weights), weights)
    assert list(shares) == list(weights)
    assert math.fsum(shares.values()) == pytest.approx(total, rel=1e-12, abs=1e-9)
    whole = sum(map(Fraction, weights.values()))
    for name, weight in weights.items():
        expected = float(Fraction(total) * Fraction(weight) / whole)
        assert shares[name] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_arrays_are_split_entry_by_entry_and_given_out_row_by_row():
    action = np.arange(6.0).reshape(3, 2)
    for share in split(action, ["a", "b"]).values():
        np.testing.assert_array_equal(share, action / 2)
    rows = set_points(action, ["c", "a", "b"])
    for name, row in zip(["c", "a", "b"], action, strict=True):
        np.testing.assert_array_equal(rows[name], row)


@pytest.mark.parametrize("mode", MODES)
def test_the_price_is_the_one_at_which_suppliers_meet_the_target(make_env, mode):
    costs = {"coal": 2.0, "gas": 0.5, "wind": 0.1}
    suppliers = {name: Supplier(name, cost) for name, cost in costs.items()}
    market = PriceCoordinator("market", price=7.0, rate=0.05, subordinates=suppliers)
    env = make_env(mode, market, *suppliers.values())
    env.reset()
    for target in (10.0, -4.0):
        for _ in range(200):
            _, reward, *_, info = env.step({"market": target})
        # All supply price / cost, so that the quantities add up to price * sum(1 / cost).
        price = target / sum(1 / cost for cost in costs.values())
        found = info["agents"]["market"]
        assert found["price"] == pytest.approx(price)
        assert found["quantity"] == pytest.approx(target)
        assert reward == -3.0


def test_a_balance_of_buyers_and_sellers_is_the_target_where_nobody_sends_one(make_env):
    class Buyer(Supplier):
        def decide(self, observation, action):
            return (action - 6.0) / self.cost  # buys below a price of 6: a negative quantity

    # A policy acts for the seller, so that the market receives None.
    seller = Supplier("seller", 1.0, action_space=BOX, observation_space=BOX)
    below = {"buyer": Buyer("buyer", 2.0), "seller": seller}
    market = PriceCoordinator("market", price=0.0, rate=0.5, subordinates=below)
    agents = {"market": market, **below}
    for agent in agents.values():
        agent.execution_mode = ExecutionMode.SYNC
    seller.policy_observation = lambda observation, action: action
    env = KafkaMultiAgentEnv(agents, ["market"], trained=["seller"])
    observations, _ = env.reset()
    for _ in range(60):
        observations, *_ = env.step({"seller": observations["seller"]})
    # p / 1 + (p - 6) / 2 = 0
    assert observations["seller"] == pytest.approx(2.0)
    env.close()


def test_the_first_price_and_limits_hold_in_each_episode(make_env):
    supplier = Supplier("supplier", 1.0)
    market = PriceCoordinator(
        "market", price=1.0, rate=10.0, low=0.5, high=2.0, subordinates={"supplier": supplier}
    )
    env = make_env(ExecutionMode.SYNC, market, supplier)
    for _ in range(2):
        env.reset()
        prices = [
            env.step({"market": target})[-1]["agents"]["market"]["price"]
            for target in (9.0, -9.0, 9.0)
        ]
        assert prices == [1.0, 2.0, 0.5]


def test_a_checkpoint_keeps_the_price(make_env):
    envs = []
    for _ in range(2):
        supplier = Supplier("supplier", 1.0)
        market = PriceCoordinator(
            "market", price=1.0, rate=0.3, subordinates={"supplier": supplier}
        )
        envs.append(make_env(ExecutionMode.SYNC, market, supplier))
    one, other = envs
    one.reset()
    one.step({"market": 5.0})
    load_env_state(other, env_state(one))
    for action in ({"market": None}, {"market": 2.0}):
        # None keeps the target, also that of a checkpoint.
        assert other.step(action)[-1] == one.step(action)[-1]
    # 0.7 * price + 0.3 * target, three times: 1 -> 2.2 -> 3.04 -> 2.728
    info = one.step({"market": 2.0})[-1]
    assert info["agents"]["market"]["price"] == pytest.approx(2.728)


def test_a_price_moves_only_before_it_is_sent(make_env):
    supplier = Supplier("supplier", 1.0)
    market = PriceCoordinator(
        "market", price=1.0, rate=0.5, decide_every=3, subordinates={"supplier": supplier}
    )
    # A policy acts for the market, so that each step of the environment is three of the physics.
    env = make_env(ExecutionMode.SYNC, market, supplier)
    env.reset()
    # As the actions of policies are, with a Box of one entry: 1 -> 1 + 0.5 * (3 - 1) -> 2 + 0.5 * (3 - 2)
    action = {"market": np.array([3.0], np.float32)}
    prices = [env.step(action)[-1]["agents"]["market"]["price"] for _ in range(3)]
    assert prices == [1.0, 2.0, 2.5]
    assert env.timestep == 9


@pytest.mark.parametrize("action", [math.nan, [1.0, 2.0], "3", np.array([])])
def test_a_target_that_is_no_number_is_refused(make_env, action):
    market = PriceCoordinator("market", price=1.0, rate=0.1, subordinates={"a": Leaf("a")})
    env = make_env(ExecutionMode.SYNC, market, *market.subordinates.values())
    env.reset()
    with pytest.raises(ValueError, match="agent 'market': action: expected a finite number"):
        env.step({"market": action})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Leaf("a", protocol=split), "agent 'a': protocol: expected subordinates to direct, got none"),
        (
            lambda: Supplier("a", 1.0, protocol=split, subordinates={"b": Leaf("b")}),
            "protocol: expected a class that does not override decide, which calls it, got Supplier",
        ),
        (lambda: split(1.0, ["a", "b"], {"a": 1.0}), r"split: weights: .* for each of \['a', 'b'\]"),
        (lambda: split(1.0, ["a"], {"a": 1.0, "c": 1.0}), r"split: weights: .* for each of \['a'\]"),
        (lambda: split(1.0, ["a", "b"], {"a": -1.0, "b": 2.0}), "of at least 0"),
        (lambda: split(1.0, ["a"], {"a": math.nan}), "of at least 0"),
        (lambda: split(1.0, ["a"], {"a": math.inf}), "of at least 0"),
        (lambda: set_points([1.0], ["a", "b"]), r"each of the 2 agents \['a', 'b'\], got 1: \[1.0\]"),
        (lambda: set_points(1.0, ["a"]), "each of the 1 agents .*, got no sequence: 1.0"),
    ],
)  # fmt: skip
def test_what_has_no_effect_or_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subordinates": {}}, "subordinates: expected at least one, got none"),
        ({"price": math.nan}, "price: expected a number from -inf to inf, got nan"),
        ({"price": 3.0, "high": 2.0}, "price: expected a number from -inf to 2.0, got 3.0"),
        ({"rate": 0.0}, "rate: expected a number other than 0, got 0.0"),
        ({"rate": math.inf}, "rate: expected a number other than 0, got inf"),
        ({"target": math.nan}, "target: expected a number, got nan"),
    ],
)
def test_a_price_that_cannot_move_is_refused(settings, message):
    settings = {"price": 1.0, "rate": 0.1, "subordinates": {"a": Leaf("a")}, **settings}
    with pytest.raises(ValueError, match=message):
        PriceCoordinator("market", **settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Leaf("a", protocol="split", subordinates={"b": Leaf("b")}),
            "agent 'a': protocol: expected a function such as `broadcast`, got 'split'",
        ),
        (lambda: split(None, ["a", "b"]), r"split: expected a number .* \['a', 'b'\], got None"),
        (lambda: split([1.0], ["a"], {"a": 1.0}), r"split: expected a number .*, got \[1.0\]"),
        (
            lambda: PriceCoordinator("a", price="1", rate=1.0, subordinates={"b": Leaf("b")}),
            "agent 'a': price: expected a number, got '1'",
        ),
    ],
)  # fmt: skip
def test_values_of_another_type_are_named(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize("report", [{}, {"quantity": math.nan}, {"quantity": math.inf}])
def test_a_report_without_a_quantity_names_who_sent_it(make_env, report):
    class Silent(Leaf):
        def compile_info(self, infos):
            return report

    market = PriceCoordinator("market", price=1.0, rate=0.1, subordinates={"a": Silent("a")})
    env = make_env(ExecutionMode.ASYNC, market, *market.subordinates.values())
    env.reset()
    with pytest.raises(
        ValueError, match="expected the number \"quantity\" in the info of 'a', got"
    ):
        env.step({"market": 1.0})
