from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
import weakref

import pytest

pytest.importorskip("imageio_ffmpeg")
pytest.importorskip("pygame")
from cli_process import command
from small_build import Config, build
from video_reader import fps_of, read

from parllel.cli.show_policy import _Screen
from parllel.runners import train
from parllel.runs import load_state, save_state


def episodes_of(output):
    """Return the `(return, length)` that are printed."""
    found = re.findall(r"^seed \d+: return ([\d.]+) in (\d+) steps$", output, re.M)
    return [(float(return_), int(length)) for return_, length in found]


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_video_of_the_episodes(call, run):
    before = files_of(run)
    status, output, errors = call("show", run)
    assert (status, errors) == (0, "")
    assert output.startswith("policy after 60 environment steps\n")
    episodes = episodes_of(output)
    assert len(episodes) == 3
    assert all(return_ == length for return_, length in episodes)  # each step of CartPole pays one
    mean = sum(return_ for return_, _ in episodes) / 3
    assert f"mean return {mean:.2f}\n" in output
    video = run / "policy.mp4"
    assert output.endswith(f"The video is {video}\n")
    frames = read(video)
    assert frames.shape == (sum(length for _, length in episodes), 400, 600, 3)
    assert fps_of(video) == 50  # as CartPole says
    after = files_of(run)
    del after[video]
    assert after == before


def test_the_steps_are_those_of_the_checkpoint_that_is_whole(call, run):
    paths = sorted((run / "checkpoints").iterdir())
    paths[-1].write_bytes(paths[-1].read_bytes()[:-100])
    status, output, _ = call("show", run, "--episodes", 1)
    assert status == 0
    step = int(paths[-2].stem.split("-")[1])
    assert step < 60
    assert output.startswith(f"policy after {step} environment steps\n")


def test_the_same_episodes_again_and_others(call, run):
    def show(*more):
        return episodes_of(call("show", run, *more, "--episodes", 4)[1])

    assert show() == show("--seed", 0)
    assert show("--seed", 4) != show()


def test_where_and_how_fast_the_video_is(call, run, tmp_path):
    video = tmp_path / "new" / "cart.gif"
    status, output, _ = call("show", run, "--video", video, "--episodes", 1, "--fps", 10)
    assert status == 0
    ((_, length),) = episodes_of(output)
    assert len(read(video)) == length
    assert not (run / "policy.mp4").exists()


def test_a_window_where_there_is_a_display(spawn, call, run, monkeypatch):
    done = spawn(
        "show", run, "--episodes", 1, "--fps", 10000, DISPLAY=":7", SDL_VIDEODRIVER="dummy"
    )
    assert len(episodes_of(done.stdout)) == 1
    assert (done.stderr, "video" in done.stdout) == ("", False)
    assert not (run / "policy.mp4").exists()
    video = run.parent / "asked.mp4"
    monkeypatch.setenv("DISPLAY", ":7")
    assert call("show", run, "--episodes", 1, "--video", video)[0] == 0
    assert video.exists()


def test_nothing_is_said_of_displays_where_there_is_none(spawn, run, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    done = spawn("show", run, "--episodes", 1)
    assert (done.stderr, (run / "policy.mp4").exists()) == ("", True)


def test_a_display_that_does_not_answer_is_said(spawn, run):
    done = spawn("show", run, "--episodes", 1, DISPLAY=":7331", check=False)
    assert done.returncode == 2
    assert "no window can be opened" in done.stderr
    assert "write a video file instead" in done.stderr


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_within_a_callback_of_the_interpreter_is_not_lost(
    number, status, call, run, monkeypatch
):
    class Thing:
        pass

    def show(self, *args):
        if not referred:
            thing = Thing()
            # What the handler raises is lost here.
            referred.append(weakref.ref(thing, lambda _: signal.raise_signal(number)))
            del thing
        show_one(self, *args)

    referred, show_one = [], _Screen.show
    monkeypatch.setattr(_Screen, "show", show)
    ended = pytest.raises((SystemExit, KeyboardInterrupt))
    with ended:
        raise SystemExit(call("show", run, "--episodes", 3)[0])
    assert getattr(ended.excinfo.value, "code", 130) == status
    assert not (run / "policy.mp4").exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.few(1)
def test_a_signal_leaves_no_half_of_a_video(run, number, status):
    process = subprocess.Popen(command("show", run, "--episodes", 1000), stderr=subprocess.PIPE)
    with process:
        deadline = time.monotonic() + 40
        while not list(run.glob("policy.mp4.*.tmp")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        errors = process.communicate(timeout=20)[1].decode()
    assert (process.returncode, "Traceback" in errors) == (status, False)
    assert not list(run.glob("policy.mp4*"))


def test_a_file_that_is_no_video_is_refused_before_anything_is_built(mistake, run, monkeypatch):
    monkeypatch.setattr("small_build.build", None)
    assert "expected a file name that ends in .mp4" in mistake("show", run, "--video", "a.avi")


def test_what_cannot_be_shown(mistake, run, tmp_path):
    assert "--column: expected one of 0 to 1, got 2" in mistake("show", run, "--column", 2)
    assert "--episodes: expected 1 or more, got 0" in mistake("show", run, "--episodes", 0)
    assert "--seed: expected 0 or more, got -1" in mistake("show", run, "--seed", -1)
    assert "fps: expected a number above 0, got -1" in mistake("show", run, "--fps", "-1")
    (tmp_path / "file").touch()
    assert "file" in mistake("show", run, "--video", tmp_path / "file" / "a.mp4")
    shutil.rmtree(run / "checkpoints")
    assert "checkpoint" in mistake("show", run)
    for config, expected in (
        (Config(render_mode=None), 'create it with render_mode="rgb_array"'),
        (Config(evaluate=False), "this run has no EvalSampler"),
    ):
        path = train(build, config, base=tmp_path)[1].path
        assert expected in mistake("show", path)
        assert not (path / "policy.mp4").exists()


def test_the_best_policy_can_be_shown(call, mistake, run):
    (best,) = (run / "best").iterdir()
    steps = int(best.stem.removeprefix("step-"))
    moved = best.rename(best.with_name("step-000000000020.zip"))
    state = load_state(moved)
    assert state["elapsed_steps"] == steps
    save_state(moved, {**state, "elapsed_steps": 20})
    status, output, _ = call("show", run, "--best", "--episodes", 1, "--seed", 0)
    assert (status, output.splitlines()[0]) == (0, "policy after 20 environment steps")
    _, output, _ = call("show", run, "--episodes", 1, "--seed", 0)
    assert output.splitlines()[0] == "policy after 60 environment steps"
    moved.unlink()
    assert f"{run / 'best'}: there is no checkpoint" in mistake("show", run, "--best")
