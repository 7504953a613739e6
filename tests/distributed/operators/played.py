"""Episodes that a worker plays, compared with those of `play_episodes`."""

from __future__ import annotations

import numpy as np

START_S = 60.0  # a trained policy imports torch
STEP_S = 20.0


def played(handle, seed):
    """Return the actions of an episode, as JSON values, and its `episode_end`."""
    handle.send_reset(seed)
    ready = handle.read_response(START_S)
    assert ready["type"] == "ready", ready
    actions = []
    while True:
        handle.send_step()
        step = handle.read_response(STEP_S)
        assert step["type"] == "step", step
        actions.append(step["action"])
        if step["terminated"] or step["truncated"]:
            return actions, handle.read_response(STEP_S)


def assert_plays(handle, episodes):
    """Check that a worker plays the episodes that `play_episodes` has played, with their actions."""
    for expected in episodes:
        actions, end = played(handle, expected.seed)
        # Floats are the shortest decimals that stand for them in their type.
        found = np.asarray(actions, expected.actions.dtype)
        np.testing.assert_array_equal(found, expected.actions)
        assert end["type"] == "episode_end"
        assert end["episode_length"] == expected.traj.length
        assert end["total_reward"] == expected.traj.return_
        assert (end["terminated"], end["truncated"]) == (expected.terminated, expected.truncated)
