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
from parllel.pictures import RenderedColumns, RenderingError
from parllel.runners import ShowPolicyRunner
from parllel.samplers import EvalSampler
from parllel.testing.sampler_setup import CagesOf, SamplerSetup

LENGTHS = ((3, 5), (2, 4), (6,), (1, 2))
FACTORIES = tuple(partial(PaintedEnv, lengths, shade=60 * i) for i, lengths in enumerate(LENGTHS))
PLACES = {
    "cages": {"make_cage": Cage},
    "processes": {"make_cage": ProcessCage},
    "vectorized": {"make_cages": CagesOf(VectorizedCage, (1, 3))},
    "synchronized": {"make_cages": CagesOf(partial(SynchronizedProcessCage, n_workers=2))},
}


class Frames(list):
    """Keep copies of what is shown."""

    def __call__(self, frame):
        self.append(frame.copy())


def eval_sampler(factories=FACTORIES, n_episodes=None, **placement):
    parts = SamplerSetup(1, tuple(factories), storage="managed", **placement).build()
    n_episodes = len(factories) if n_episodes is None else n_episodes
    return EvalSampler(parts.cages, parts.handler, parts.samples, n_episodes)


def numbers(trajs):
    return [(traj.length, traj.return_) for traj in trajs]


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
def test_every_step_of_one_environment_is_shown(placement, column):
    frames = Frames()
    with eval_sampler(**placement) as sampler:
        trajs = ShowPolicyRunner(sampler, 3, show=frames, column=column).run()
    cycle = LENGTHS[column]
    lengths = [cycle[i % len(cycle)] for i in range(3)]
    assert [traj.length for traj in trajs] == lengths
    expected = [painted(step, 60 * column) for length in lengths for step in range(length)]
    np.testing.assert_array_equal(frames, expected)


def test_the_agent_plays_as_in_an_evaluation():
    with eval_sampler() as sampler:
        expected = numbers(sampler.collect_batch(0)[1])
    found = []
    for column in range(4):
        with eval_sampler() as sampler:
            found += numbers(ShowPolicyRunner(sampler, 1, show=Frames(), column=column).run())
    assert found == expected


def test_evaluations_go_on_as_before():
    with eval_sampler(n_episodes=6) as sampler:
        quotas = sampler.quotas.tolist()

        def stop(frame):
            raise KeyError("enough")

        with pytest.raises(KeyError, match="enough"):
            ShowPolicyRunner(sampler, 2, show=stop).run()
        ShowPolicyRunner(sampler, 2, show=Frames()).run()
        assert sampler.handler.agent.mode == "sample"
        assert (sampler.quotas.tolist(), sampler.watch) == (quotas, None)
        assert len(sampler.collect_batch(0)[1]) == 6


def test_no_other_environment_is_drawn():
    with eval_sampler(make_cages=CagesOf(VectorizedCage)) as sampler:
        ShowPolicyRunner(sampler, 2, show=Frames(), column=1).run()
        (cage,) = sampler.cages.cages
        assert cage.n_renders == [0, 2 + 4, 0, 0]


@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
def test_a_seed_makes_the_same_episodes_again(placement):
    make = partial(PaintedEnv, range(1, 12), random_lengths=True)
    reference = make()
    reference.reset(seed=9)
    expected = []
    for _ in range(5):
        reference.reset()
        expected.append(reference._length)
    assert len(set(expected)) > 1
    with eval_sampler((make,) * 2, **placement_of(placement, 2)) as sampler:
        for column in (0, 1):
            for _ in range(2):
                player = ShowPolicyRunner(sampler, 5, show=Frames(), column=column, seed=9)
                assert [traj.length for traj in player.run()] == expected
        plain = ShowPolicyRunner(sampler, 5, show=Frames())
        assert [traj.length for traj in plain.run()] != expected


def placement_of(placement, n):
    """Return the placement for another number of environments."""
    made = placement.get("make_cages")
    return placement if made is None else {"make_cages": CagesOf(made.make, (n,))}


def test_pictures_of_several_columns_come_in_order():
    with eval_sampler(make_cages=CagesOf(VectorizedCage, (1, 3))) as sampler:
        sampler.cages.reset(0, everyone=True)
        rendered = RenderedColumns(sampler.cages, (3, 0, 2))
        assert (rendered.columns, rendered.fps) == ([0, 2, 3], 20)
        expected = [painted(0, shade) for shade in (0, 120, 180)]
        np.testing.assert_array_equal(rendered.frames(), expected)


def test_wrong_arguments():
    with eval_sampler() as sampler:
        with pytest.raises(ValueError, match="n_episodes: expected at least 1, got 0"):
            ShowPolicyRunner(sampler, 0, show=Frames())
        for column in (-1, 4):
            with pytest.raises(
                ValueError, match=rf"columns: expected some of 0 to 3, got \[{column}"
            ):
                ShowPolicyRunner(sampler, 1, show=Frames(), column=column)


@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
def test_environments_that_cannot_be_drawn(placement):
    factories = (FACTORIES[0], partial(PaintedEnv, render_mode=None))
    with eval_sampler(factories, **placement_of(placement, 2)) as sampler:
        ShowPolicyRunner(sampler, 1, show=Frames()).run()
        message = (
            r'environment 1 \(PaintedEnv.*\): cannot be drawn, .* with render_mode="rgb_array"'
        )
        with pytest.raises(WrongStateError, match=message):
            ShowPolicyRunner(sampler, 1, show=Frames(), column=1)


@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
def test_environments_that_raise_when_they_are_drawn(placement):
    factories = (FACTORIES[0], partial(PaintedEnv, failing=2))
    frames = Frames()
    with eval_sampler(factories, **placement_of(placement, 2)) as sampler:
        player = ShowPolicyRunner(sampler, 1, show=frames, column=1)
        message = r"environments \[1\] could not be drawn: RuntimeError: out of paint"
        with pytest.raises(RenderingError, match=message):
            player.run()
    assert len(frames) == 1


class AnsiEnv(PaintedEnv):
    def render(self):
        return "a pole, upright"


def test_what_is_drawn_is_checked():
    with eval_sampler((AnsiEnv,)) as sampler:
        player = ShowPolicyRunner(sampler, 1, show=Frames())
        with pytest.raises(
            ValueError, match=r"environment 0: render: expected a picture, .* 'a pole"
        ):
            player.run()


WINDOW = """
import numpy as np, pygame
from parllel.pictures import Window, WindowClosedError

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
