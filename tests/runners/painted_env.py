"""An environment whose pictures tell which environment it is, and how far its episode."""

from __future__ import annotations

import numpy as np

from parllel.testing.dummy_envs import CountingEnv

SIZE = (24, 32)


class PaintedEnv(CountingEnv):
    """A CountingEnv that draws itself in one colour.

    shade: its green.
    failing: number of the call of `render`, from 1, that raises.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, lengths=5, shade=0, failing=None, render_mode="rgb_array", **options):
        super().__init__(lengths, **options)
        self.shade = shade
        self.failing = failing
        self.render_mode = render_mode
        self.n_renders = 0

    def render(self):
        self.n_renders += 1
        if self.n_renders == self.failing:
            raise RuntimeError("out of paint")
        return painted(self._step, self.shade)


def painted(step, shade):
    """Return what such an environment draws after `step` steps of an episode."""
    picture = np.empty((*SIZE, 3), np.uint8)
    picture[...] = (20 * step, shade, 128)
    return picture
