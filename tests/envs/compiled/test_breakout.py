"""The rules of Breakout, seen in its frames and in its record."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, TransformObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.arrays import LazyFramesArray
from parllel.envs.compiled.breakout import Breakout

STAY, LEFT, RIGHT = range(3)
BALL = 255


def follow(env, rng, skill):
    """Return an action: with this probability towards the ball, otherwise a random one."""
    if rng.random() >= skill:
        return int(rng.integers(3))
    ahead = env.x - (env.paddle + 5)
    return STAY if abs(ahead) < 3 else RIGHT if ahead > 0 else LEFT


def bricks_in(frame):
    """Return which bricks a frame shows, [row, column]."""
    middles = frame[12:30:3, 3::7]
    return (middles > 0) & (middles < BALL)


def played(seed, skill, n_steps, **parameters):
    """Yield the environment, the observations before and after each step, and its results."""
    env, rng = Breakout(**parameters), np.random.default_rng(seed)
    before, _ = env.reset(seed=seed)
    for _ in range(n_steps):
        after, reward, terminated, truncated, _ = env.step(follow(env, rng, skill))
        yield env, before, after, reward, terminated, truncated
        if terminated or truncated:
            after, _ = env.reset()
        before = after


examples = given(seed=st.integers(0, 2**32), skill=st.sampled_from([0.0, 0.7, 0.95]))


@settings(max_examples=20)
@examples
def test_rewards_are_the_bricks_that_vanished(seed, skill):
    for _, before, after, reward, *_ in played(seed, skill, 400):
        old, new = bricks_in(before[-1]), bricks_in(after[-1])
        assert not (new & ~old).any()
        assert reward == old.sum() - new.sum()


@settings(max_examples=20)
@examples
def test_the_ball_is_one_and_stays_within_the_walls(seed, skill):
    for env, _, after, *_ in played(seed, skill, 400):
        rows, columns = np.nonzero(after[-1] == BALL)
        assert len(rows) == 4
        assert (rows.min(), columns.min()) == (env.y, env.x)
        assert rows.min() >= 6
        assert np.ptp(rows) == np.ptp(columns) == 1
        assert 0 <= env.paddle <= 72
        bricks = bricks_in(after[-1])
        assert not any(
            bricks[(y - 12) // 3, x // 7]
            for y, x in zip(rows, columns, strict=True)
            if 12 <= y < 30
        )


@settings(max_examples=20)
@examples
def test_observations_are_the_last_four_frames(seed, skill):
    begins = True
    for _, before, after, _, terminated, truncated in played(seed, skill, 100):
        np.testing.assert_array_equal(after[:3], before[1:])
        assert not begins or (before == before[-1]).all()
        begins = terminated or truncated


def test_frames_are_stacked_as_by_gymnasium_and_stored_once():
    frame = spaces.Box(0, 255, (84, 84), np.uint8)
    single = TransformObservation(Breakout(), lambda stack: stack[-1], frame)
    env, reference = Breakout(), FrameStackObservation(single, 4)
    array = LazyFramesArray((50, 1, 4, 84, 84), np.uint8)
    np.testing.assert_array_equal(env.reset(seed=3)[0], reference.reset(seed=3)[0])
    stacks = []
    for t in range(50):
        stack = env.step(t % 3)[0]
        np.testing.assert_array_equal(stack, reference.step(t % 3)[0])
        array[t, 0] = stack
        stacks.append(stack)
    np.testing.assert_array_equal(array[:, 0], stacks)


@pytest.mark.parametrize("lives", [1, 3])
def test_the_episode_ends_when_the_last_ball_is_lost(lives):
    n_lost, n_episodes = 0, 0
    for env, before, after, _, terminated, truncated in played(0, 0.3, 3000, lives=lives):
        shown = [int((frame[1, 2::6][:13] > 0).sum()) for frame in (before[-1], after[-1])]
        assert shown[1] == env.lives_left
        n_lost += shown[0] - shown[1]
        assert terminated == (env.lives_left == 0)
        assert not truncated
        n_episodes += terminated
    assert n_episodes > 5
    assert n_lost >= lives * n_episodes


def test_the_episode_ends_with_the_last_brick():
    n_cleared = 0
    for seed in range(8):
        for env, _, after, _, terminated, truncated in played(seed, 0.95, 5000):
            if terminated or truncated:
                left = bricks_in(after[-1]).any()
                assert terminated == (not left or env.lives_left == 0)
                assert truncated == (env.elapsed_steps == 5000)
                n_cleared += not left
                break
    assert n_cleared >= 2


def test_a_ball_that_hits_the_paddle_s_side_leaves_more_flatly():
    env = Breakout()
    speeds = {}
    for offset in range(-1, 12):
        env.reset(seed=0)
        env.paddle, env.x, env.y, env.dx, env.dy = 36, 36 + offset, 75, 0, 2
        env.step(STAY)
        assert (env.y, env.dy) == (76, -2)
        speeds[offset] = env.dx
    assert sorted(speeds.values()) == list(speeds.values())
    assert (speeds[-1], speeds[11]) == (-3, 3)
    assert set(speeds.values()) == {-3, -2, -1, 1, 2, 3}


def test_the_upper_bricks_make_the_ball_faster():
    env = Breakout()
    for row in range(6):
        env.reset(seed=0)
        env.bricks[-1, row + 1 :] = 0
        env.x, env.y, env.dx, env.dy = 30, 12 + 3 * (row + 1), 1, -2
        assert env.step(STAY)[1] == 1
        assert env.dy == (3 if row < 3 else 2)


def test_it_draws_its_latest_frame():
    env = Breakout(render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(20):
        frame = env.step(LEFT)[0][-1]
    picture = env.render()
    assert picture.shape == (336, 336, 3)
    np.testing.assert_array_equal(picture[::4, ::4].any(axis=2), frame > 0)
