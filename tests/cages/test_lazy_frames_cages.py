"""Cages write stacks that are stored frame by frame: they read back as whole ones do."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation
from numpy.typing import NDArray

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.arrays import LazyFramesArray
from parllel.buffers import Field, Samples, allocate, buffer_leaves, buffer_map
from parllel.buffers.tree import buffer_rotate
from parllel.cages import (
    Cage,
    ProcessCage,
    SynchronizedProcessCage,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.samplers import AlternatingSampler, BasicSampler, EvalSampler
from parllel.testing import CountingAgent, CountingEnv
from parllel.testing.cages.cage_hooks import (
    FIRST,
    LENGTHS,
    SEEDS,
    N,
    draw_columns,
    record_columns,
    run,
    run_groups,
)
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    draw_actions,
    make_samples,
    seeds_of,
    simulate,
)
from parllel.transforms import NormalizeObservations
from parllel_patterns import allocate_eval_samples, allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
K = 3
FORKED: dict[str, Any] = {"start_method": "fork", "timeout_s": 20.0}
SYNCHRONIZED = {
    "one worker": {"n_workers": 1},
    "two workers, two groups": {"n_workers": 2, "n_groups": 2},
    "main takes part": {"n_workers": 2, "participate": True, "n_main": 2},
}


def stacked(lengths: Any, padding_type: str = "reset", k: int = K, **options: Any) -> gym.Env:
    return FrameStackObservation(CountingEnv(lengths, **options), k, padding_type=padding_type)


def framed(env: Any, T: int, B: int, storage: str) -> Samples:
    """Return samples whose observations are stored frame by frame."""
    samples = make_samples(env, T, B, storage=storage)
    fields = buffer_map(
        lambda leaf: Field(np.zeros(leaf.shape[2:]), padding=1, dtype=leaf.dtype, frames=K),
        samples.env.observation,
    )
    observation = allocate(fields, BatchSpec(T, B), storage=storage)
    leaves = [leaf for _, leaf in buffer_leaves(observation)]
    assert all(isinstance(leaf, LazyFramesArray) for leaf in leaves)
    made: Samples = samples._replace(env=samples.env._replace(observation=observation))
    return made


def vector_cage(kind: str, factories: Any, **options: Any) -> Any:
    if kind == "vectorized":
        return VectorizedCage(factories, **options)
    if kind == "native":
        return VectorizedCage(VectorEnvFactory(lambda n: SyncVectorEnv(factories)), **options)
    return SynchronizedProcessCage(factories, **SYNCHRONIZED[kind], **FORKED, **options)


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("padding_type", ["reset", "zero"])
@pytest.mark.parametrize("layout", ["image", "dict"])
@pytest.mark.parametrize(
    ("kind", "storage"), [(Cage, "local"), (ProcessCage, "managed"), (ProcessCage, "local")]
)
def test_one_environment_is_recorded_as_a_plain_loop_sees_it(
    kind: Any, storage: str, layout: str, padding_type: str, automatic: bool
) -> None:
    """Local memory moves when the cage is bound."""
    factory = partial(stacked, (3, 1, 9, 4), padding_type, layout=layout, end="alternate")
    actions = draw_actions(CountingEnv().action_space, 0, 4, 6)
    samples = framed(factory(), 6, 2, storage)
    options = FORKED if kind is ProcessCage else {}
    with kind(factory, seed=3, reset_automatically=automatic, **options) as cage:
        cage.set_samples_buffer(samples, slice(1, 2))
        found = record_columns(cage, samples, [actions], automatic=automatic)[0]
    assert_same_batches(found, simulate(factory(), 3, actions, automatic=automatic))


@pytest.mark.parametrize("kind", [Cage, ProcessCage])
def test_out_arguments_of_the_plain_face_take_stacks(kind: Any) -> None:
    factory, plain = partial(stacked, (3, 4)), stacked((3, 4))
    observation = framed(plain, 8, 2, "managed").env.observation
    with kind(factory, seed=3, **FORKED if kind is ProcessCage else {}) as cage:
        cage.reset_async(out_obs=observation[0, 1])
        cage.await_step()
        expected = [plain.reset(seed=seeds_of(3)[0])[0]]
        for t in range(8):
            cage.step_async(t % 4, out_obs=observation[t + 1, 1])
            result = cage.await_step()
            stack, _, terminated, *_ = plain.step(t % 4)
            assert result.terminated == terminated
            expected.append(plain.reset()[0] if terminated else stack)
    np.testing.assert_array_equal(np.asarray(observation)[:, 1], expected[:8])
    np.testing.assert_array_equal(observation[8, 1], expected[8])


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("info", [True, False])
@pytest.mark.parametrize("kind", ["vectorized", "native", *SYNCHRONIZED])
@pytest.mark.few(8)
def test_columns_are_recorded_as_plain_loops_see_them(
    kind: str, info: bool, automatic: bool
) -> None:
    factories = [
        partial(stacked, lengths, padding_type)
        for lengths, padding_type in zip(LENGTHS, ["reset", "zero"] * N, strict=False)
    ]
    T = 5
    samples = framed(factories[0](), T, N + 2, "managed" if kind in SYNCHRONIZED else "local")
    if not info:  # then cells are looked up beforehand
        samples = samples._replace(env=samples.env._replace(env_info=None))
    actions = draw_columns()
    options = {"seeds": SEEDS, "reset_automatically": automatic}
    with vector_cage(kind, factories, **options) as cage:
        cage.set_samples_buffer(samples, slice(FIRST, FIRST + N))
        found = record_columns(cage, samples, actions, automatic=automatic)
    for i, column in enumerate(found):
        expected = simulate(factories[i](), SEEDS[i], actions[i], automatic=automatic, info=info)
        assert_same_batches(column, expected)
    for t in range(T + 1):  # the columns of others
        row = np.asarray(samples.env.observation[t])
        assert not row[0].any()
        assert not row[-1].any()


@pytest.mark.parametrize("kind", ["vectorized", "two workers, two groups"])
def test_decorrelation_leaves_the_stacks_that_it_reached(kind: str) -> None:
    factories = [partial(stacked, lengths) for lengths in LENGTHS]
    found = []
    for make in (framed, partial(make_samples)):
        samples = make(factories[0](), 4, N + 2, storage="managed")
        samples.agent.action[...] = 1
        with vector_cage(kind, factories, seeds=SEEDS) as cage:
            cage.set_samples_buffer(samples, slice(FIRST, FIRST + N))
            run_groups(cage, "start_reset", 0)
            run(cage, "start_decorrelation", [2, 7, 5, 0, 9], 0)
            for t in range(4):
                run_groups(cage, "start_row", t)
        found.append(np.array([np.array(samples.env.observation[t]) for t in range(5)]))
    np.testing.assert_array_equal(found[0], found[1])


def test_a_wrapper_that_steps_in_reset_is_told_where_it_belongs() -> None:
    class Late(gym.Wrapper):
        def reset(self, **options: Any) -> Any:
            self.env.reset(**options)
            observation, _, _, _, info = self.env.step(0)
            return observation, info

    samples = framed(stacked(4), 6, 1, "local")
    with VectorizedCage([lambda: Late(stacked(4))]) as cage:
        cage.set_samples_buffer(samples, slice(0, 1))
        run_groups(cage, "start_reset", 0)  # which row 0 can take
        for t in range(2):
            run_groups(cage, "start_row", t)
        with pytest.raises(ValueError, match="wrappers that step within reset"):
            run_groups(cage, "start_row", 2)  # the episode ends: steps 2, 3 and 4 have been made


# ---------------------------------------------------------------------- what the agent sees


def sampled(cls: Any, kind: str, frames: int, torch_agent: bool = False) -> list[Any]:
    """Return all that three batches leave, with agents whose actions depend on every observed number."""
    factories = [partial(stacked, lengths) for lengths in LENGTHS]
    spec = BatchSpec(5, N)
    with vector_cage(kind, factories, seeds=range(N)) as cage:
        handler = torch_handler() if torch_agent else NumpyHandler(CountingAgent(4))
        samples = allocate_samples([cage], spec, handler, frames=frames)
        assert isinstance(samples.env.observation, LazyFramesArray) is bool(frames)
        sampler = cls(spec, [cage], handler, samples, decorrelation_steps=4, decorrelation_seed=0)
        found = []
        for _ in range(3):
            sampler.collect_batch(0)
            leaves = buffer_leaves(samples)
            found += [(path, np.array(leaf)) for path, leaf in leaves]
        sampler.close()
    return found


def torch_handler() -> Any:
    from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler

    class Flat(PgModel):
        def forward(self, observation: Any) -> Any:
            return super().forward(observation.flatten(1).float())

    model = Flat(np.shape(stacked(1).reset()[0]), CategoricalHead(4), (8,), seed=0)
    return TorchHandler(CategoricalPgAgent(model, 4, seed=0))


@pytest.mark.parametrize(
    ("cls", "kind", "torch_agent"),
    [
        (BasicSampler, "vectorized", False),
        (BasicSampler, "main takes part", False),
        (AlternatingSampler, "two workers, two groups", False),
        (BasicSampler, "vectorized", True),
        (AlternatingSampler, "two workers, two groups", True),
    ],
)
def test_samplers_fill_the_same_batches(cls: Any, kind: str, torch_agent: bool) -> None:
    mine, theirs = (sampled(cls, kind, frames, torch_agent) for frames in (K, 0))
    for (path, found), (_, expected) in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=path)


def test_evaluation_plays_the_same_episodes() -> None:
    played = []
    for frames in (K, 0):
        factories = [partial(stacked, lengths) for lengths in LENGTHS]
        with VectorizedCage(factories, seeds=range(N)) as cage:
            samples = allocate_eval_samples([cage], frames=frames)
            handler = NumpyHandler(CountingAgent(4))
            sampler = EvalSampler([cage], handler, samples, n_episodes=2 * N)
            _, trajs = sampler.collect_batch(0)
            played.append([(traj.length, traj.return_) for traj in trajs])
    assert played[0] == played[1]


def test_allocation_by_path_and_what_it_refuses() -> None:
    with VectorizedCage([partial(stacked, 5, layout="dict")]) as cage:
        handler, spec = NumpyHandler(CountingAgent(4)), BatchSpec(4, 1)
        paths = [path for path, _ in buffer_leaves(cage.spaces.observation.sample())]
        samples = allocate_samples([cage], spec, handler, frames={f"env.observation.{paths[0]}": K})
        kinds = [
            isinstance(leaf, LazyFramesArray) for _, leaf in buffer_leaves(samples.env.observation)
        ]
        assert kinds == [True] + [False] * (len(paths) - 1)
        with pytest.raises(ValueError, match=r"frames: expected paths from .*, got 'env\.obs'"):
            allocate_samples([cage], spec, handler, frames={"env.obs": K})
        with pytest.raises(
            ValueError, match=f"frames: expected the example to be a stack of {K + 1} frames"
        ):
            allocate_samples([cage], spec, handler, frames=K + 1)
        transforms = [NormalizeObservations()]
        with pytest.raises(ValueError, match="frames: expected 0, because a transform"):
            allocate_samples([cage], spec, handler, transforms, frames=K)


def test_buffers_as_examples_stay_what_they_are_and_do_not_switch() -> None:
    field = Field(np.zeros((K, 5), np.uint8), padding=1, frames=K)
    array = allocate(field, BatchSpec(4, 2))
    again = allocate(array, BatchSpec(6, 3), storage="managed", batches=2)
    assert isinstance(again, LazyFramesArray)
    assert (again.shape, again.full_size, again.storage) == ((6, 3, K, 5), 12, "managed")
    again.close()
    with pytest.raises(ValueError, match="camera: frames: stacks cannot be stored in switching"):
        allocate({"camera": field}, BatchSpec(4, 2), switching=True)


# ---------------------------------------------------------------------- Pong


def small(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a grey 210 x 160 picture as 84 x 84."""
    found = np.zeros((84, 84), np.uint8)
    found[:, 2:82] = frame[34:202:2, ::2]
    return found


def make_pong(preprocessing: str) -> gym.Env:
    import ale_py

    gym.register_envs(ale_py)
    if preprocessing == "AtariPreprocessing":
        env: Any = AtariPreprocessing(gym.make("ALE/Pong-v5", frameskip=1), noop_max=30)
    else:
        raw = gym.make("ALE/Pong-v5", obs_type="grayscale")
        env = TransformObservation(raw, small, gym.spaces.Box(0, 255, (84, 84), np.uint8))
    # Episodes are cut, as points take hundreds of steps.
    return FrameStackObservation(gym.wrappers.TimeLimit(env, 13), 4)


@pytest.mark.parametrize(
    ("kind", "preprocessing"), [("vectorized", "AtariPreprocessing"), ("main takes part", "small")]
)
@pytest.mark.few(1)
def test_pong_reads_back_as_gymnasium_gave_it(kind: str, preprocessing: str) -> None:
    pytest.importorskip("ale_py")
    if preprocessing == "AtariPreprocessing":
        pytest.importorskip("cv2")
    T, B, batches = 10, 4, 4
    factory = partial(make_pong, preprocessing)
    handler = NumpyHandler(CountingAgent(6))
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 6, (batches, T, B))
    plain = [(factory(), seeds_of(b)[0]) for b in range(B)]
    current = [env.reset(seed=seed)[0] for env, seed in plain]
    with vector_cage(kind, [factory] * B, seeds=range(B)) as cage:
        samples = allocate_samples([cage], BatchSpec(T, B), handler, frames=4)
        observation = samples.env.observation
        staged = observation.staged()
        cage.set_samples_buffer(samples, slice(0, B))
        run_groups(cage, "start_reset", 0)
        for batch in actions:
            expected = [current]
            for t in range(T):
                samples.agent.action[t] = batch[t]
                run_groups(cage, "start_row", t)
                current = []
                for (env, _), action in zip(plain, batch[t], strict=True):
                    answer = env.step(int(action))
                    current.append(env.reset()[0] if answer[2] or answer[3] else answer[0])
                expected.append(current)
                np.testing.assert_array_equal(staged, current)
            np.testing.assert_array_equal(observation, expected[:T])
            np.testing.assert_array_equal(observation[T], expected[T])
            rows, columns = rng.integers(0, T + 1, 20), rng.integers(0, B, 20)
            picked = observation.gather(rows, columns)
            np.testing.assert_array_equal(picked, np.array(expected)[rows, columns])
            final = cage.collect_final_observations()
            assert all(one.observation.shape == (4, 84, 84) for one in final)
            buffer_rotate(samples.env)
    del staged
    for env, _ in plain:
        env.close()
