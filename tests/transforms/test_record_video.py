from __future__ import annotations

import itertools
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_samples import make_samples

from parllel.arrays import LazyFramesArray
from parllel.buffers import EnvSamples, Samples, buffer_leaves
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_setup import SamplerSetup
from parllel.transforms import RecordVideo, every_nth
from parllel.transforms.record_video import capped_cubic, picture_grid, pictures_of

RED, BLUE = (230, 40, 40), (50, 110, 240)
ALWAYS = every_nth(1)


class Clips(list):
    """Take clips as `write` does."""

    def __call__(self, number, clip):
        self.append((number, clip))


def colours_of(cell):
    """Return one cell's picture [H, W, 3], pixel by pixel."""
    if cell.ndim == 4 or (cell.ndim == 3 and cell.shape[-1] not in (1, 3)):
        cell = cell[-1]
    rows = []
    for line in cell:
        rows.append([[*np.atleast_1d(pixel)] * (3 // np.size(pixel)) for pixel in line])
    return np.array(rows, np.uint8)


def bordered(picture, colour):
    picture = picture.copy()
    H, W, _ = picture.shape
    for y, x in itertools.product(range(H), range(W)):
        if y in (0, H - 1) or x in (0, W - 1):
            picture[y, x] = colour
    return picture


def frame_of(pictures):
    """Put pictures side by side, one after the other, into a black frame."""
    H, W, _ = pictures[0].shape
    wide = next(n for n in itertools.count(1) if n * n >= len(pictures))
    high = -(-len(pictures) // wide)
    frame = np.zeros((high * H, wide * W, 3), np.uint8)
    for i, picture in enumerate(pictures):
        y, x = i // wide * H, i % wide * W
        frame[y : y + H, x : x + W] = picture
    return frame


def expected_frames(samples, columns):
    """Return the frames of a batch by a plain loop."""
    env = samples.env
    observation = np.asarray(env.observation)
    frames = []
    for t in range(len(observation)):
        pictures = []
        for b in columns:
            picture = colours_of(observation[t, b])
            if np.asarray(env.terminated)[t, b]:
                picture = bordered(picture, RED)
            if np.asarray(env.truncated)[t, b]:
                picture = bordered(picture, BLUE)
            if "valid" in env._fields and not np.asarray(env.valid)[t, b]:
                picture[...] = 0
            pictures.append(picture)
        if "valid" not in env._fields or np.asarray(env.valid)[t, list(columns)].any():
            frames.append(frame_of(pictures))
    return frames


def fill(samples, seed):
    rng = np.random.default_rng(seed)
    for name in ("terminated", "truncated", "valid"):
        if name in samples.env._fields:
            field = np.asarray(getattr(samples.env, name))
            field[...] = rng.random(field.shape) < (0.7 if name == "valid" else 0.2)
    observation = np.asarray(samples.env.observation)
    observation[...] = rng.integers(0, 256, observation.shape)


SHAPES = [(6, 5), (6, 5, 1), (6, 5, 3), (4, 6, 5), (4, 6, 5, 1), (2, 6, 5, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("valid", [False, True], ids=["whole", "valid"])
def test_clips_show_the_batch(shape, valid):
    clips = Clips()
    transform = RecordVideo(clips, columns=(0, 3, 1), schedule=ALWAYS, n_frames=30)
    samples = make_samples(7, 4, np.zeros(shape, np.uint8), transform, valid=valid)
    expected = []
    while len(expected) < 30:
        fill(samples, len(expected))
        before = [np.array(leaf) for _, leaf in buffer_leaves(samples)]
        transform.transform_batch(samples)
        for (path, leaf), old in zip(buffer_leaves(samples), before, strict=True):
            np.testing.assert_array_equal(np.asarray(leaf), old, err_msg=path)
        expected += expected_frames(samples, (0, 3, 1))
    ((number, clip),) = clips
    assert (number, clip.dtype) == (0, np.uint8)
    np.testing.assert_array_equal(clip, expected[:30])


@settings(max_examples=40)
@given(
    T=st.integers(1, 5),
    B=st.integers(1, 5),
    columns=st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True),
    n_frames=st.integers(1, 12),
    n=st.integers(1, 4),
    n_batches=st.integers(1, 9),
)
def test_clips_begin_when_they_are_due_and_go_on_until_they_are_long_enough(
    T, B, columns, n_frames, n, n_batches
):
    clips, asked = Clips(), []

    def schedule(elapsed_steps, number):
        asked.append((elapsed_steps, number))
        return number % n == 0

    transform = RecordVideo(clips, columns=columns, schedule=schedule, n_frames=n_frames)
    shown = [b for b in columns if b < B]
    if not shown:
        with pytest.raises(ValueError, match=r"columns: expected at least one number below B="):
            make_samples(T, B, np.zeros((2, 3), np.uint8), transform)
        return
    samples = make_samples(T, B, np.zeros((2, 3), np.uint8), transform)
    expected, expected_asked, clip, begun = [], [], [], None
    for number in range(n_batches):
        fill(samples, number)
        transform.transform_batch(samples)
        if begun is None:
            expected_asked.append((number * T * B, number))
            if number % n:
                continue
            begun = number
        clip += expected_frames(samples, shown)
        if len(clip) >= n_frames:
            expected.append((begun, np.array(clip[:n_frames])))
            clip, begun = [], None
    assert asked == expected_asked
    assert [number for number, _ in clips] == [number for number, _ in expected]
    for (_, found), (_, frames) in zip(clips, expected, strict=True):
        np.testing.assert_array_equal(found, frames)


def test_stacks_that_are_stored_frame_by_frame():
    clips = Clips()
    transform = RecordVideo(clips, columns=(1,), schedule=ALWAYS, n_frames=3)
    samples = make_samples(3, 2, np.zeros((4, 6, 5), np.uint8))
    lazy = LazyFramesArray((3, 2, 4, 6, 5), np.uint8, padding=1)
    env = samples.env._asdict()
    samples = Samples(agent=samples.agent, env=EnvSamples(**{**env, "observation": lazy}))
    frames = np.random.default_rng(0).integers(0, 256, (8, 6, 5)).astype(np.uint8)
    for t in range(4):
        for b in range(2):
            lazy[t, b] = frames[t : t + 4]
    transform.bind(samples)
    transform.transform_batch(samples)
    grey = np.repeat(frames[3:6, :, :, np.newaxis], 3, axis=-1)
    np.testing.assert_array_equal(clips[0][1], grey)


def test_other_observations_are_made_pictures_of_by_the_user():
    clips = Clips()

    def paint(observations):
        levels = np.clip(observations[..., 0] * 255, 0, 255).astype(np.uint8)
        return np.broadcast_to(levels[:, :, None, None, None], (*levels.shape, 2, 4, 3))

    transform = RecordVideo(clips, columns=(0,), schedule=ALWAYS, n_frames=2, pictures=paint)
    samples = make_samples(2, 1, np.zeros(3, np.float32), transform)
    np.asarray(samples.env.observation)[:, 0, 0] = 0.2, 0.8
    transform.transform_batch(samples)
    np.testing.assert_array_equal(clips[0][1], np.full((2, 2, 4, 3), [[[[51]]], [[[204]]]]))


def test_a_sampler_hands_over_what_environments_return():
    clips = Clips()
    factories = tuple(partial(CountingEnv, length, layout="image") for length in (3, 4))
    parts = SamplerSetup(5, factories).build()
    transform = RecordVideo(clips, schedule=ALWAYS, n_frames=10)
    with parts.sampler(BasicSampler, batch_transforms=[transform]) as sampler:
        for _ in range(2):
            sampler.collect_batch(0)
    ((_, clip),) = clips
    assert clip.shape == (10, 2, 4, 3)
    for column, length in enumerate((3, 4)):
        picture = clip[:, :, 2 * column : 2 * column + 2]
        steps = [t % length for t in range(10)]
        for t, step in enumerate(steps):
            # Of two by two pixels all are border.
            expected = RED if step == length - 1 else (*picture[0, 0, 0, :1], t // length, step)
            assert (picture[t] == expected).all()


def test_a_clip_that_cannot_be_written_is_a_warning():
    def write(number, clip):
        raise OSError("the disk is full")

    transform = RecordVideo(write, schedule=ALWAYS, n_frames=2)
    samples = make_samples(2, 4, np.zeros((2, 2), np.uint8), transform)
    for number in range(2):
        with pytest.warns(
            RuntimeWarning, match=f"clip of batch {number} is lost: the disk is full"
        ):
            transform.transform_batch(samples)


def test_the_schedule_is_told_the_steps_that_were_sampled():
    asked = []

    def schedule(elapsed_steps, number):
        asked.append((elapsed_steps, number))
        return False

    def make():
        return RecordVideo(Clips(), schedule=schedule)

    transform = make()
    samples = make_samples(5, 3, np.zeros((2, 2), np.uint8), transform, valid=True)
    expected, steps = [], 0
    for number in range(6):
        if number == 3:
            state, transform = transform.state(), make()
            transform.load_state(pickle.loads(pickle.dumps(state)))
            transform.bind(samples)
        fill(samples, number)
        transform.transform_batch(samples)
        expected.append((steps, number))
        steps += sum(bool(cell) for cell in np.asarray(samples.env.valid).ravel())
    assert asked == expected
    assert 0 < steps < 6 * 15


@pytest.mark.parametrize("valid", [False, True], ids=["whole", "valid"])
def test_pictures_are_made_of_no_more_rows_than_are_shown(valid):
    clips, shapes = Clips(), []

    def paint(observations):
        shapes.append(observations.shape)
        levels = observations[..., 0].astype(np.uint8)
        # Nothing can be drawn on this.
        return np.broadcast_to(levels[:, :, None, None, None], (*levels.shape, 4, 4, 3))

    transform = RecordVideo(clips, columns=(1,), schedule=ALWAYS, n_frames=7, pictures=paint)
    samples = make_samples(5, 3, np.zeros(2, np.float32), transform, valid=valid)
    env = samples.env
    np.asarray(env.observation)[:, 1, 0] = range(1, 6)
    np.asarray(env.terminated)[3, 1] = True
    if valid:
        np.asarray(env.valid)[[0, 2, 3, 4], 1] = True
    shapes.clear()
    for _ in range(2):
        transform.transform_batch(samples)
    rows = [1, 3, 4, 5, 1, 3, 4] if valid else [1, 2, 3, 4, 5, 1, 2]
    assert shapes == [(5, 1, 2), (4 if valid else 2, 1, 2)]
    ((_, clip),) = clips
    assert clip[:, 1, 1, 0].tolist() == rows
    assert [tuple(picture[0, 0]) == RED for picture in clip] == [row == 4 for row in rows]


def test_wrong_arguments_and_observations():
    with pytest.raises(ValueError, match=r"columns: expected different numbers, got \(\)"):
        RecordVideo(Clips(), columns=())
    with pytest.raises(ValueError, match=r"columns: expected different numbers, got \(1, 1\)"):
        RecordVideo(Clips(), columns=(1, 1))
    with pytest.raises(ValueError, match="n_frames: expected at least 1, got 0"):
        RecordVideo(Clips(), n_frames=0)
    with pytest.raises(TypeError, match=r"RecordVideo: schedule: expected a function .*, got 10"):
        RecordVideo(Clips(), schedule=10)
    for example in (np.zeros((4, 4), np.float32), np.zeros(4, np.uint8)):
        with pytest.raises(ValueError, match=r"env\.observation: expected images, uint8 \[H, W\]"):
            make_samples(2, 1, example, RecordVideo(Clips()))
    with pytest.raises(ValueError, match=r"env\.observation: expected 1 or 3 colours"):
        make_samples(2, 1, np.zeros((2, 4, 4, 5), np.uint8), RecordVideo(Clips()))
    both = {name: np.zeros((4, 4), np.uint8) for name in ("left", "right")}
    with pytest.raises(ValueError, match=r"env\.observation: expected one array, got"):
        make_samples(2, 1, both, RecordVideo(Clips()))
    make_samples(2, 1, both, RecordVideo(Clips(), source="env.observation.left"))
    with pytest.raises(
        ValueError, match=r"pictures: expected uint8 \[1, 1, H, W, 3\], got float64"
    ):
        make_samples(2, 1, both["left"], RecordVideo(Clips(), pictures=np.float64))


def test_pictures_of_are_views_where_they_can_be():
    stacks = np.zeros((2, 3, 4, 8, 8, 3), np.uint8)
    assert np.shares_memory(pictures_of(stacks), stacks)


@given(st.integers(1, 10), st.integers(1, 3), st.integers(1, 3), st.lists(st.integers(1, 2)))
def test_grids(n, H, W, lead):
    shape = (*lead[:2], n, H, W, 3)
    pictures = np.random.default_rng(n).integers(0, 256, shape).astype(np.uint8)
    grid = picture_grid(pictures)
    for place in np.ndindex(*lead[:2]):
        np.testing.assert_array_equal(grid[place], frame_of(list(pictures[place])))


def test_a_grid_of_nothing():
    for shape in ((0, 2, 2, 3), (2, 2, 3)):
        with pytest.raises(
            ValueError, match=r"pictures: expected \[\.\.\., n, H, W, C\], got shape"
        ):
            picture_grid(np.zeros(shape, np.uint8))


def test_schedules():
    cubes = {k**3 for k in range(10)}
    found = [n for n in range(5000) if capped_cubic(123, n)]
    assert found == [*sorted(cubes), 1000, 2000, 3000, 4000]
    third = pickle.loads(pickle.dumps(every_nth(3)))
    assert [n for n in range(10) if third(0, n)] == [0, 3, 6, 9]
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="n: expected an int of at least 1, got"):
            every_nth(wrong)
