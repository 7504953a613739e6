from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from painted_env import PaintedEnv, painted

from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.errors import WrongStateError
from parllel.pictures import RenderingError
from parllel.pictures.rendered_columns import RenderedColumns
from parllel.pictures.rendered_env import RenderedEnv
from parllel.samplers import EvalSampler
from parllel.testing.sampler_setup import MakeCages, SamplerSetup

LENGTHS = ((3, 5), (2, 4), (6,), (1, 2))
FACTORIES = tuple(partial(PaintedEnv, lengths, shade=60 * i) for i, lengths in enumerate(LENGTHS))
PLACES = {
    "cages": {"make_cage": Cage},
    "processes": {"make_cage": ProcessCage},
    "vectorized": {"make_cages": MakeCages(VectorizedCage, (1, 3))},
    "synchronized": {"make_cages": MakeCages(partial(SynchronizedProcessCage, n_workers=2))},
}


def eval_sampler(factories=FACTORIES, n_episodes=None, **placement):
    parts = SamplerSetup(1, tuple(factories), storage="managed", **placement).build()
    n_episodes = len(factories) if n_episodes is None else n_episodes
    return EvalSampler(parts.cages, parts.handler, parts.samples, n_episodes)


@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
@pytest.mark.few(1)
def test_the_environment_of_one_column_is_drawn(placement):
    with eval_sampler(**placement) as sampler:
        sampler.cages.reset(0, all_envs=True)
        for column in range(4):
            (frame,) = RenderedColumns(sampler.cages, [column]).frames()
            np.testing.assert_array_equal(frame, painted(0, 60 * column))


def test_no_other_environment_is_drawn():
    with eval_sampler(make_cages=MakeCages(VectorizedCage)) as sampler:
        sampler.cages.reset(0, all_envs=True)
        rendered = RenderedColumns(sampler.cages, [1])
        for _ in range(6):
            rendered.frames()
        (cage,) = sampler.cages.cages
        assert cage.n_renders == [0, 6, 0, 0]


def placement_of(placement, n):
    """Return the placement for another number of environments."""
    made = placement.get("make_cages")
    return placement if made is None else {"make_cages": MakeCages(made.make, (n,))}


def test_pictures_of_several_columns_come_in_order():
    with eval_sampler(make_cages=MakeCages(VectorizedCage, (1, 3))) as sampler:
        sampler.cages.reset(0, all_envs=True)
        rendered = RenderedColumns(sampler.cages, (3, 0, 2))
        assert (rendered.columns, rendered.fps) == ([0, 2, 3], 20)
        expected = [painted(0, shade) for shade in (0, 120, 180)]
        np.testing.assert_array_equal(rendered.frames(), expected)


def test_wrong_columns():
    with eval_sampler() as sampler:
        for column in (-1, 4):
            with pytest.raises(
                ValueError, match=rf"columns: expected numbers from 0 to 3, got \[{column}"
            ):
                RenderedColumns(sampler.cages, [column])


@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
def test_environments_that_cannot_be_drawn(placement):
    factories = (FACTORIES[0], partial(PaintedEnv, render_mode=None))
    with eval_sampler(factories, **placement_of(placement, 2)) as sampler:
        RenderedColumns(sampler.cages, [0])
        message = (
            r'environment 1 \(PaintedEnv.*\): cannot be drawn, .* with render_mode="rgb_array"'
        )
        with pytest.raises(WrongStateError, match=message):
            RenderedColumns(sampler.cages, [1])


@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
def test_environments_that_raise_when_they_are_drawn(placement):
    factories = (FACTORIES[0], partial(PaintedEnv, failing=2))
    with eval_sampler(factories, **placement_of(placement, 2)) as sampler:
        sampler.cages.reset(0, all_envs=True)
        rendered = RenderedColumns(sampler.cages, [1])
        rendered.frames()
        message = r"environments \[1\] could not be drawn: RuntimeError: out of paint"
        with pytest.raises(RenderingError, match=message):
            rendered.frames()


class AnsiEnv(PaintedEnv):
    def render(self):
        return "a pole, upright"


def test_what_is_drawn_is_checked():
    with eval_sampler((AnsiEnv,)) as sampler:
        sampler.cages.reset(0, all_envs=True)
        rendered = RenderedColumns(sampler.cages, [0])
        with pytest.raises(
            ValueError, match=r"environment 0: render: expected a picture, .* 'a pole"
        ):
            rendered.frames()


def test_one_environment_of_this_process():
    env = PaintedEnv((3,), shade=60, failing=2)
    env.reset()
    rendered = RenderedEnv(env, "my cart")
    assert rendered.fps == 20
    np.testing.assert_array_equal(rendered.frame(), painted(0, 60))
    with pytest.raises(RenderingError, match="my cart could not be drawn: RuntimeError: out of p"):
        rendered.frame()
    with pytest.raises(
        WrongStateError, match="my cart: cannot be drawn, because its render_mode is None"
    ):
        RenderedEnv(PaintedEnv(render_mode=None), "my cart")
    with pytest.raises(ValueError, match=r"environment: render: expected a picture, .* 'a pole"):
        RenderedEnv(AnsiEnv()).frame()


WINDOW = """
import numpy as np, pygame
from parllel.pictures.window import Window, WindowClosedError

frame = np.zeros((100, 40, 3), np.uint8)
frame[:, :20] = 200, 10, 30
with Window("a run", fps=1000) as window:
    for _ in range(3):
        window.show(frame)
    surface = pygame.display.get_surface()
    print(surface.get_size(), pygame.display.get_caption()[0])
    print(surface.get_at((5, 500))[:3], surface.get_at((300, 500))[:3])
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    try:
        window.show(frame)
    except WindowClosedError as error:
        print(error)
    window.close()
print(pygame.display.get_init())
"""


def run_with(code, driver):
    pytest.importorskip("pygame")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SDL_VIDEODRIVER": driver},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_a_window_shows_pictures_large_enough_to_see():
    assert run_with(WINDOW, "dummy") == (
        [
            "(320, 800) a run",
            "(200, 10, 30) (0, 0, 0)",
            "a run: the window was closed",
            "False",
        ],
        [],
    )


def test_a_display_that_cannot_be_reached():
    _, errors = run_with(WINDOW, "nonsense")
    assert errors[-1].startswith("OSError: no window can be opened (nonsense not available)")
