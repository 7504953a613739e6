"""Contract of stepping a cage of one environment without rows, and of its attributes and methods."""

# Who writes what, if the cage is a ProcessCage:
#
#   this process   step_async: the action and the places of the out arguments, in one request
#   worker         steps; writes the out arguments to memory that both map; then replies
#   this process   await_step: reads the other parts from the reply; the memory may be read now

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from parllel.errors import ClosedError, WrongStateError
from parllel.testing.cages.cage_hooks import FIRST, SEEDS, SingleCageHooks, run
from parllel.testing.cages.row_reference import assert_same_tree, make_samples, plain, seeds_of
from parllel.testing.dummy_envs import CountingEnv

OUTS = {
    "out_obs": "observation",
    "out_next_obs": "next_observation",
    "out_reward": "reward",
    "out_terminated": "terminated",
    "out_truncated": "truncated",
    "out_info": "info",
}

# All that starts a plain step. Each must be refused while anything else is unfinished.
PLAIN_CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("step_async", (0,)),
    ("random_step_async", ()),
    ("reset_async", ()),
)


class StepMethodsContract(SingleCageHooks):
    """Tests of `step_async` and `await_step`, and of environment methods called through the cage."""

    def with_outs(self, env_factory: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Return a cage, and an output array for each part of a result."""
        # A buffer only for its memory, which a worker can write: the tests pick a cell of each
        # field. No field holds the observation before a reset, so `env.observation` is halved.
        samples = make_samples(env_factory(), 4, 3, storage=self.storage)
        cage = self.made([env_factory], samples=samples, **options)
        env = samples.env
        places = {
            "out_action": samples.agent.action,
            "out_obs": env.observation[:2],
            "out_next_obs": env.observation[2:],
            "out_reward": env.reward,
            "out_terminated": env.terminated,
            "out_truncated": env.truncated,
            "out_info": env.env_info,
        }
        return cage, places

    @pytest.mark.parametrize("layout", ["box", "tuple"])
    def test_results_are_those_of_a_plain_loop(self, layout: str) -> None:
        factory = partial(CountingEnv, (3, 1, 4), end="alternate", layout=layout)
        env = factory()
        with self.made([factory]) as cage:
            assert cage.needs_reset.tolist() == [True]
            cage.reset_async()
            first = cage.await_step()
            observation, info = env.reset(seed=seeds_of(SEEDS[0])[0])
            assert_same_tree(first.observation, observation, "observation")
            # Infos are returned whole, strings included; an `out_info` gets only its own keys.
            assert first.info["note"] == info["note"]
            for k in range(12):
                cage.step_async(k % 4)
                found = cage.await_step()
                after, reward, terminated, truncated, info = env.step(k % 4)
                # Before the reset within the step: a value after a truncation is computed from this one.
                assert_same_tree(found.next_observation, after, "next_observation")
                if terminated or truncated:
                    after, _ = env.reset()
                # The cage has made this reset within the step, in the process of the environment:
                # this one makes its own reset, with the same generator, to compare.
                assert_same_tree(found.observation, after, "observation")
                assert (found.reward, found.terminated) == (reward, terminated)
                assert found.truncated is truncated
                assert found.info["note"] == info["note"]
                assert cage.needs_reset.tolist() == [False]
            assert [traj.length for traj in cage.collect_completed_trajs()] == [3, 1, 4, 3, 1]
            assert cage.collect_completed_trajs() == []
            # Those belong to rows; a plain step returns its own as `next_observation`.
            assert cage.collect_final_observations() == []

    @pytest.mark.parametrize("out", sorted(OUTS))
    def test_each_part_can_go_out_alone(self, out: str) -> None:
        # Episodes of one step, so that what a step led to and what a reset gave are two observations.
        cage, places = self.with_outs(partial(CountingEnv, 1, layout="dict"))
        env = CountingEnv(1, layout="dict")
        env.reset(seed=seeds_of(SEEDS[0])[0])
        expected = dict(zip(list(OUTS.values())[1:], env.step(3), strict=True))
        expected["observation"] = env.reset()[0]
        with cage:
            cage.reset_async()
            cage.await_step()
            cage.step_async(3, **{out: places[out][1, FIRST]})
            result = cage.await_step()
            part = OUTS[out]
            # A result that held it too would be a second copy, which is what writing in place saves.
            with pytest.raises(WrongStateError, match=f"'{part}' was written to {out}"):
                getattr(result, part)
            # Read after `await_step`: before that, the worker may still be writing.
            written = plain(places[out], 1, FIRST)
            if part == "info":
                expected["info"] = {name: expected["info"][name] for name in written}
            assert_same_tree(written, expected[part], part)
            for name in set(OUTS.values()) - {part, "info"}:
                assert_same_tree(getattr(result, name), expected[name], name)
            with pytest.raises(AttributeError, match="no 'colour' in this result"):
                _ = result.colour

    def test_all_parts_can_go_out(self) -> None:
        cage, places = self.with_outs(partial(CountingEnv, 1, end="both"))
        with cage:
            reset = {"out_obs": places["out_obs"], "out_info": places["out_info"]}
            cage.reset_async(**{name: place[0, FIRST] for name, place in reset.items()})
            cage.await_step()
            assert plain(places["out_obs"], 0, FIRST)[1:].tolist() == [0, 0]
            assert plain(places["out_info"], 0, FIRST)["step"] == 0
            # All in one request, in storage of the class under test: a place that the worker could
            # not map would be written in a copy, and stay zero here.
            outs = {name: place[1, FIRST] for name, place in places.items()}
            cage.random_step_async(**outs)
            result = cage.await_step()
            # The action that the environment got: a sample drawn a second time would be another one.
            (action,) = cage.actions
            assert plain(places["out_action"], 1, FIRST) == action
            assert plain(places["out_reward"], 1, FIRST) == 1 + action / 8
            assert plain(places["out_obs"], 1, FIRST)[1:].tolist() == [1, 0]
            assert plain(places["out_next_obs"], 1, FIRST)[1:].tolist() == [0, 1]
            assert plain(places["out_terminated"], 1, FIRST)
            assert plain(places["out_truncated"], 1, FIRST)
            for name in ("action", *OUTS.values()):
                with pytest.raises(WrongStateError, match="read it there"):
                    getattr(result, name)

    def test_a_random_step_tells_its_action(self) -> None:
        space = spaces.Tuple((spaces.Discrete(50, start=-9), spaces.MultiBinary(3)))
        with self.made([partial(CountingEnv, action_space=space)]) as cage:
            cage.reset_async()
            cage.await_step()
            cage.random_step_async()
            # The action space has a seed of its own, so that random steps can be repeated.
            # The cage draws from a copy that it made at its start, so seeding this object changes
            # nothing there.
            space.seed(seeds_of(SEEDS[0])[1])
            assert_same_tree(cage.await_step().action, space.sample(), "action")

    @pytest.mark.parametrize(
        "space",
        [
            spaces.Discrete(3, start=5),
            spaces.Box(-1, 1, ()),
            spaces.Box(-1, 1, (2,), np.float64),
            spaces.MultiDiscrete([3, 4]),
            spaces.Dict({"b": spaces.MultiBinary(2), "a": spaces.Tuple((spaces.Discrete(3),))}),
        ],
        ids=str,
    )
    # From a buffer, a Dict comes as a named tuple and a Discrete as an array: environments expect neither.
    @pytest.mark.parametrize("buffered", [False, True])
    def test_actions_arrive_whole(self, space: Any, buffered: bool) -> None:
        factory = partial(CountingEnv, 9, action_space=space)
        cage, places = self.with_outs(factory)
        space.seed(3)
        action: Any = space.sample()
        with cage:
            cage.reset_async()
            cage.await_step()
            given = action
            if buffered:
                places["out_action"][2, FIRST] = action
                given = places["out_action"][2, FIRST]
            cage.step_async(given)
            cage.await_step()
            (taken,) = cage.actions
        assert space.contains(taken)
        assert_same_tree(taken, action, "action")

    def test_an_action_of_another_form_changes_nothing(self) -> None:
        space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,))})
        with self.made([partial(CountingEnv, 9, action_space=space)]) as cage:
            cage.reset_async()
            cage.await_step()
            # The action is converted by the process that steps, before it steps. A ProcessCage thus
            # raises in `await_step`, a Cage in `step_async`.
            with pytest.raises(KeyError, match="b"):
                _step(cage, {"a": 1})
            # The cage is as it was: the call that was refused has started nothing.
            cage.step_async({"a": 1, "b": np.zeros(2)})
            assert cage.await_step().reward == 1 + 1 / 8

    def test_steps_in_a_wrong_order_change_nothing(self) -> None:
        cage, _ = self.bound([partial(CountingEnv, 2)], reset_automatically=False)
        with cage:
            with pytest.raises(WrongStateError, match=r"await_step\(\) without"):
                cage.await_step()
            for step in (partial(cage.step_async, 0), cage.random_step_async):
                with pytest.raises(WrongStateError, match="before a reset"):
                    step()
            # From here on the reset is in progress in a ProcessCage, and done but not awaited in a
            # Cage. Both refuse the same calls, so that a loop written with one runs with the other.
            cage.reset_async()
            for method, args in (
                *PLAIN_CALLS,
                ("start_row", (0,)),
                ("start_reset", (0,)),
                ("start_random_row", (0,)),
                ("start_decorrelation", ([1],)),
            ):
                with pytest.raises(WrongStateError, match=r"is not finished|was not awaited"):
                    getattr(cage, method)(*args)
            # The two interfaces do not take each other's results.
            with pytest.raises(WrongStateError, match=r"finish_row\(\) was called without"):
                cage.finish_row()
            cage.await_step()
            # The same with a row in progress, which the worker may be writing.
            cage.start_reset(0)
            for method, args in PLAIN_CALLS:
                with pytest.raises(WrongStateError, match="is not finished"):
                    getattr(cage, method)(*args)
            with pytest.raises(WrongStateError, match="without a step_async"):
                cage.await_step()
            cage.finish_row()
            for _ in range(2):
                cage.step_async(1)
                cage.await_step()
            assert cage.needs_reset.tolist() == [True]
            # Known in this process from the flag in the last reply: the worker would refuse it too,
            # but only `await_step` would report that.
            with pytest.raises(WrongStateError, match="before a reset"):
                cage.step_async(1)
            # Not one call that was refused has reached the environment.
            assert cage.actions == [1, 1]

    def test_arguments_are_checked(self) -> None:
        with self.made([CountingEnv]) as cage:
            cage.reset_async()
            cage.await_step()
            # All arguments are checked before anything is sent, as a step cannot be taken back.
            with pytest.raises(TypeError, match="out_reward: expected an Array or node, got 3"):
                cage.step_async(0, out_reward=3)
            # A misspelt `out_` would leave its place in the buffer as it was, unnoticed.
            with pytest.raises(TypeError, match=r"unexpected arguments \['out_observation'\]"):
                cage.random_step_async(out_observation=np.zeros(3))
            assert cage.actions == []

    def test_both_faces_of_one_cage(self) -> None:
        """A reset through either interface ends the waiting of the other."""
        cage, samples = self.bound([partial(CountingEnv, 2)], reset_automatically=False)
        with cage:
            seen = []
            for _ in range(3):
                # Both interfaces share one flag. A reset of one that the other did not see would
                # begin a second episode here, or be refused as a step before a reset.
                run(cage, "start_reset", 0, all_envs=False)
                seen.append(plain(samples.env.observation, 0, FIRST)[1:].tolist())
                for t in range(2):
                    run(cage, "start_row", t)
                assert cage.needs_reset.tolist() == [True]
                cage.reset_async()
                seen.append(cage.await_step().observation[1:].tolist())
                assert cage.needs_reset.tolist() == [False]
                for _ in range(2):
                    cage.step_async(0)
                    last = cage.await_step()
                assert last.next_observation[2] == 2
            # Each reset of either face began one episode, and none was begun twice.
            assert seen == [[k, 0] for k in range(6)]

    def test_methods_are_called_as_if_they_were_the_cages(self) -> None:
        with self.made([CountingEnv]) as cage:
            # Over a process these are two requests: a method cannot be sent, so the answer to the
            # first is only that it is one, and the second makes the call.
            assert cage.add(2, right=3) == 5
            assert cage.env_method("add", left=2, right=-2) == 0
            with pytest.raises(ValueError, match="sunshine"):
                cage.fail("sunshine")
            # A name that the environment lacks is an AttributeError, also where a process stands between.
            assert not hasattr(cage, "weather")
            cage.reset_async()
            assert cage.await_step().observation[1:].tolist() == [0, 0]
            cage.step_async(0)
            cage.await_step()
            np.testing.assert_array_equal(cage.render(), np.ones((2, 2, 3), np.uint8))

    def test_closing_ends_plain_steps(self) -> None:
        # Closed while the process may still be starting: the cage has never asked for its spaces.
        cage = self.made([CountingEnv])
        cage.close()
        for method, args in (*PLAIN_CALLS, ("await_step", ())):
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                getattr(cage, method)(*args)


def _step(cage: Any, action: Any) -> Any:
    # Both halves, as an error is raised by either, according to where the environment is.
    cage.step_async(action)
    return cage.await_step()
