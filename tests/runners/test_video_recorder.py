from __future__ import annotations

import os
import signal
from functools import partial

import numpy as np
import pytest

pytest.importorskip("imageio_ffmpeg")
from painted_env import SIZE, PaintedEnv, painted
from video_reader import fps_of, read

from parllel.algos import Algorithm
from parllel.cages import VectorizedCage
from parllel.errors import WrongStateError
from parllel.logging import Logger, TensorBoardWriter, Writer
from parllel.runners import OnPolicyRunner, VideoRecorder
from parllel.runs import RunFolder
from parllel.samplers import BasicSampler, EvalSampler
from parllel.testing.sampler_setup import MakeCages, SamplerSetup
from parllel.transforms import every_nth

LENGTHS = (3, 5, 4)


class NoAlgorithm(Algorithm):
    """Learn nothing, perhaps by failing."""

    def __init__(self, failing_at=None):
        self.failing_at = failing_at

    def optimize_agent(self, elapsed_steps, samples):
        if elapsed_steps == self.failing_at:
            raise FloatingPointError("the loss is not finite")
        return {}


class Messages(Writer):
    """Keep rows and messages."""

    def __init__(self):
        self.rows, self.messages = {}, []

    def write(self, step, values):
        self.rows[step] = dict(values)

    def message(self, level, text):
        if level == "warning":
            self.messages.append(text)

    def close(self):
        pass


def train(recorder, *, n_steps=60, algorithm=None, folder=None, more=(), **first_options):
    """Sample ten steps at a time, with an evaluation at 0, 20, 40, 60; return what was logged.

    first_options: of the first of the environments of evaluations.
    """
    training = SamplerSetup(5, (PaintedEnv, PaintedEnv)).build()
    factories = tuple(
        partial(PaintedEnv, length, shade=80 * i, **({} if i else first_options))
        for i, length in enumerate(LENGTHS)
    )
    evaluation = SamplerSetup(1, factories, make_cages=MakeCages(VectorizedCage), seed=1).build()
    writer = Messages()
    with (
        BasicSampler(
            training.batch_spec, training.cages, training.handler, training.samples
        ) as sampler,
        EvalSampler(evaluation.cages, training.handler, evaluation.samples, 4) as eval_sampler,
    ):
        runner = OnPolicyRunner(
            training.batch_spec,
            sampler,
            NoAlgorithm() if algorithm is None else algorithm,
            n_steps=n_steps,
            logger=Logger([writer, *more]),
            log_interval_steps=20,
            eval_sampler=eval_sampler,
            folder=folder,
            callbacks=[] if recorder is None else [recorder],
        )
        runner.run()
        assert eval_sampler.watch is None
    return writer


def test_tensorboard_gets_a_smaller_video(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import IMAGES, EventAccumulator

    recorder = VideoRecorder(every_nth(2), folder=tmp_path / "videos")
    train(recorder, more=[TensorBoardWriter(tmp_path / "events")])
    assert names(tmp_path / "videos") == ["step-000000000000.mp4", "step-000000000040.mp4"]
    accumulator = EventAccumulator(str(tmp_path / "events"), {IMAGES: 0})
    accumulator.Reload()
    events = accumulator.Images("evaluation")
    assert [event.step for event in events] == [0, 40]
    for event in events:
        path = tmp_path / "newest.gif"
        path.write_bytes(event.encoded_image_string)
        np.testing.assert_allclose(read(path), expected_frames(3)[::2], atol=6)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def expected_frames(n_envs):
    """Return what four episodes of three environments look like: the first of them plays two."""
    frames = []
    for t in range(6):
        frame = np.zeros((2 * SIZE[0], 2 * SIZE[1], 3), np.uint8)
        for i in range(n_envs):
            y, x = i // 2 * SIZE[0], i % 2 * SIZE[1]
            frame[y : y + SIZE[0], x : x + SIZE[1]] = painted(t % LENGTHS[i], 80 * i)
        frames.append(frame)
    return np.array(frames)


def assert_like(found, expected):
    assert found.shape == expected.shape
    H, W = SIZE
    for y in (H // 2, H + H // 2):  # the middle of each environment's picture
        for x in (W // 2, W + W // 2):
            difference = found[:, y, x].astype(int) - expected[:, y, x].astype(int)
            assert np.abs(difference).max() < 16


def test_evaluations_are_recorded_when_they_are_due(tmp_path):
    asked = []

    def schedule(elapsed_steps, number):
        asked.append((elapsed_steps, number))
        return number in (0, 2)

    train(VideoRecorder(schedule, folder=tmp_path, keep=None))
    assert asked == [(0, 0), (20, 1), (40, 2), (60, 3)]
    assert names(tmp_path) == ["step-000000000000.mp4", "step-000000000040.mp4"]
    for path in tmp_path.iterdir():
        assert fps_of(path) == 20  # what the environment says
        assert_like(read(path), expected_frames(3))


def test_it_goes_into_the_folder_of_the_run_and_keeps_the_newest(tmp_path):
    folder = RunFolder(tmp_path, "run")
    train(VideoRecorder(every_nth(1), keep=2, fps=5), folder=folder)
    videos = folder.path / "videos"
    assert names(videos) == ["step-000000000040.mp4", "step-000000000060.mp4"]
    assert fps_of(videos / "step-000000000060.mp4") == 5


def test_fewer_environments_and_frames(tmp_path):
    train(VideoRecorder(folder=tmp_path, n_envs=1, max_frames=2), n_steps=10)
    (frames,) = (read(path) for path in tmp_path.glob("*000.mp4"))
    assert_frame = [painted(t, 0) for t in range(2)]
    np.testing.assert_allclose(frames, assert_frame, atol=16)


def test_training_is_the_same_with_and_without(tmp_path):
    recorder = VideoRecorder(every_nth(1), folder=tmp_path)
    rows = [train(recorder).rows, train(None).rows]
    for found in rows:
        for row in found.values():
            for name in [name for name in row if name.startswith("time/")]:
                del row[name]
    assert rows[0] == rows[1]
    assert list(rows[0]) == [0, 20, 40, 60]


def test_an_environment_that_fails_to_draw_costs_its_video_alone(tmp_path):
    writer = train(VideoRecorder(every_nth(1), folder=tmp_path), failing=8)
    # The first evaluation is of six frames; the second fails, and the third is whole again.
    (message,) = writer.messages
    assert message == (
        "no video of this evaluation: RenderingError: environments [0, 1, 2] could not be drawn: "
        "RuntimeError: out of paint"
    )
    steps = [f"step-{step:012d}.mp4" for step in (0, 40, 60)]
    assert names(tmp_path) == steps
    assert [len(read(tmp_path / name)) for name in steps] == [6] * 3
    assert list(writer.rows) == [0, 20, 40, 60]


def test_a_video_that_cannot_be_written_is_one_warning(tmp_path):
    class Killing(VideoRecorder):
        def after_evaluation(self, elapsed_steps, trajs):
            if elapsed_steps == 20:
                # Not by its own kill(), which closes its input first: ffmpeg might end well before it.
                os.kill(self._file._program.pid, signal.SIGKILL)
            super().after_evaluation(elapsed_steps, trajs)

    writer = train(Killing(every_nth(1), folder=tmp_path))
    (message,) = writer.messages
    assert message.startswith("no video of this evaluation: OSError: ")
    assert "step-000000000020.mp4: the video could not be written" in message
    assert names(tmp_path) == [f"step-{step:012d}.mp4" for step in (0, 40, 60)]


def test_a_folder_that_is_gone_is_a_warning(tmp_path):
    folder = tmp_path / "videos"

    class Removing(VideoRecorder):
        def before_evaluation(self, elapsed_steps):
            if elapsed_steps == 20:
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()
                folder.touch()
            super().before_evaluation(elapsed_steps)

    writer = train(Removing(every_nth(2), folder=folder))
    (message,) = writer.messages
    assert message.startswith("no video of this evaluation: FileExistsError: ")


class FailingOnce(PaintedEnv):
    def step(self, action):
        if self.n_renders == 2:
            raise ArithmeticError("the pole is broken")
        return super().step(action)


def test_an_evaluation_that_raises_leaves_nothing_half_written(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PaintedEnv", FailingOnce)
    recorder = VideoRecorder(folder=tmp_path)
    with pytest.raises(ArithmeticError, match="the pole is broken"):
        train(recorder)
    assert names(tmp_path) == []


def test_the_state_is_the_number_of_evaluations(tmp_path):
    recorder = VideoRecorder(every_nth(3), folder=tmp_path)
    train(recorder, n_steps=20)
    assert recorder.state() == {"n_evaluations": 2}
    asked = []
    restored = VideoRecorder(lambda *known: asked.append(known), folder=tmp_path)
    restored.load_state(recorder.state())
    train(restored, n_steps=20)
    assert [number for _, number in asked] == [2, 3]


def test_what_is_missing_is_told_at_the_start(tmp_path):
    with pytest.raises(WrongStateError, match=r"environment 0 .* cannot be drawn"):
        train(VideoRecorder(folder=tmp_path), render_mode=None)
    with pytest.raises(ValueError, match="VideoRecorder: folder: expected a folder"):
        train(VideoRecorder())
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        train(VideoRecorder(folder=tmp_path / "file"))
    for name in ("n_envs", "max_frames", "keep"):
        with pytest.raises(ValueError, match=f"VideoRecorder: {name}: expected at least 1, got 0"):
            VideoRecorder(**{name: 0})
    with pytest.raises(
        TypeError, match=r"VideoRecorder: schedule: expected .* every_nth\(10\), got 5"
    ):
        VideoRecorder(5)


def test_a_runner_that_does_not_evaluate_is_refused():
    setup = SamplerSetup(5, (PaintedEnv,)).build()
    with BasicSampler(setup.batch_spec, setup.cages, setup.handler, setup.samples) as sampler:
        runner = OnPolicyRunner(
            setup.batch_spec,
            sampler,
            NoAlgorithm(),
            n_steps=10,
            logger=Logger([Messages()]),
            log_interval_steps=10,
            callbacks=[VideoRecorder()],
        )
        with pytest.raises(ValueError, match="expected a runner with an EvalSampler, got None"):
            runner.run()
