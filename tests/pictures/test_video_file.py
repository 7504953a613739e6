from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("imageio_ffmpeg")
from video_reader import fps_of, read

from parllel.errors import ClosedError, WorkerTimeoutError
from parllel.pictures import VideoFile, VideoFolder, video_file, write_video
from parllel.system.processes import Program

SIZE = (48, 64)


def frames_of(n, size=SIZE):
    """Return n pictures, each of one colour in its upper and of another in its lower half."""
    frames = np.zeros((n, *size, 3), np.uint8)
    for i, frame in enumerate(frames):
        frame[: size[0] // 2] = (10 + 20 * i, 60, 200 - 10 * i)
        frame[size[0] // 2 :] = (60, 10 + 10 * i, 90)
    return frames


def assert_like(found, expected):
    """Compare the colours in the middle of both halves; encoding changes them a little."""
    assert found.shape == expected.shape
    for row in (found.shape[1] // 4, 3 * found.shape[1] // 4):
        difference = found[:, row].astype(int) - expected[:, row].astype(int)
        assert np.abs(difference).mean() < 4
        assert np.abs(difference).max() < 24


@pytest.mark.parametrize("name", ["video.mp4", "video.gif", "Video.MP4"])
def test_a_video_holds_the_pictures(tmp_path, name):
    frames, path = frames_of(8), tmp_path / "new" / "folder" / name
    with VideoFile(path, fps=10) as file:
        for frame in frames:
            file.write(frame)
        assert not path.exists()  # not before it is complete
    assert list(path.parent.iterdir()) == [path]
    if path.suffix == ".MP4":
        path = path.rename(path.with_suffix(".mp4"))
    assert_like(read(path), frames)


def test_the_pace_is_that_which_was_asked_for(tmp_path):
    for fps in (10, 25):
        path = tmp_path / f"{fps}.mp4"
        write_video(path, frames_of(5), fps)
        assert fps_of(path) == fps


@pytest.mark.parametrize("size", [(47, 64), (48, 63), (47, 63)])
def test_odd_sizes_become_even_by_repeating_the_edge(tmp_path, size):
    frames = frames_of(3, size)
    write_video(tmp_path / "odd.mp4", frames)
    expected = np.concatenate([frames, frames[:, -1:]], axis=1) if size[0] % 2 else frames
    expected = np.concatenate([expected, expected[:, :, -1:]], axis=2) if size[1] % 2 else expected
    assert_like(read(tmp_path / "odd.mp4"), expected)
    write_video(tmp_path / "odd.gif", frames)
    assert_like(read(tmp_path / "odd.gif"), frames)


def test_a_picture_may_be_changed_after_it_was_written(tmp_path):
    frames = frames_of(6)
    with VideoFile(tmp_path / "video.mp4") as file:
        picture = np.empty_like(frames[0])
        for frame in frames:
            picture[...] = frame
            file.write(picture)
            picture[...] = 0
        file.write(frames[0][:, ::-1][:, ::-1])  # any memory layout
    assert_like(read(tmp_path / "video.mp4"), np.concatenate([frames, frames[:1]]))


def test_another_of_that_name_is_replaced(tmp_path):
    path = tmp_path / "video.mp4"
    path.write_text("an old one")
    with VideoFile(path) as file:
        file.write(frames_of(1)[0])
        assert path.read_text() == "an old one"
    assert len(read(path)) == 1


def test_an_exception_discards_it(tmp_path):
    def fail():
        with VideoFile(tmp_path / "video.mp4") as file:
            file.write(frames_of(1)[0])
            raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError, match="by zero"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_without_pictures_there_is_no_file(tmp_path):
    file = VideoFile(tmp_path / "video.mp4")
    file.close()
    file.close()
    file.discard()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ClosedError, match=r"video\.mp4: written to after close"):
        file.write(frames_of(1)[0])


def test_a_killed_ffmpeg_is_told_at_the_end(tmp_path):
    file = VideoFile(tmp_path / "video.mp4")
    file.write(frames_of(1)[0])
    os.kill(file._program.pid, signal.SIGKILL)
    assert file._program.wait(30) == -signal.SIGKILL
    for frame in frames_of(5):
        file.write(frame)
    with pytest.raises(OSError, match=r"video\.mp4: the video could not be written: .* status -9"):
        file.close()
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_an_ffmpeg_that_is_stopped_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(video_file, "WRITE_S", 0.05)
    with VideoFile(tmp_path / "video.mp4") as file:
        file.write(frames_of(1)[0])
        os.kill(file._program.pid, signal.SIGSTOP)
        frames = iter(lambda: file.write(np.zeros((*SIZE, 3), np.uint8)), "never")
        with pytest.raises(WorkerTimeoutError, match=r"video\.mp4: ffmpeg: process \d+ accepted"):
            list(frames)
        with pytest.raises(ClosedError, match=r"video\.mp4: written to after close"):
            file.write(frames_of(1)[0])
    assert list(tmp_path.iterdir()) == []


def begun(path):
    """Return a file of which ffmpeg has written something aside."""
    file = VideoFile(path)
    for frame in [*frames_of(10)] * 10:
        file.write(frame)
    deadline = time.monotonic() + 30
    while not file._aside.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return file


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("end", ["close", "discard"])
def test_a_fork_leaves_it_to_the_process_that_opened_it(tmp_path, end):
    file = begun(tmp_path / "video.mp4")
    pid = os.fork()
    if pid == 0:
        try:
            with pytest.raises(ClosedError, match=r"only process .*, which opened it"):
                file.write(frames_of(1)[0])
            getattr(file, end)()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    file.close()
    assert len(read(tmp_path / "video.mp4")) == 100


def test_an_interrupt_while_it_is_closed_discards_it(tmp_path, monkeypatch):
    def interrupt(program, timeout_s):
        raise KeyboardInterrupt

    file = begun(tmp_path / "video.mp4")
    monkeypatch.setattr(Program, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_forgotten_one_is_discarded(tmp_path):
    file = begun(tmp_path / "video.mp4")
    del file
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_its_folder_may_vanish(tmp_path):
    folder = tmp_path / "folder"
    file = VideoFile(folder / "video.mp4")
    folder.rmdir()
    file.write(frames_of(1)[0])
    with pytest.raises(OSError, match=r"video\.mp4: .*ffmpeg ended with status"):
        file.close()


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root alone")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["video.mp4", "video.gif"])
@pytest.mark.parametrize("n_frames", [2, 40])
def test_a_full_disk_is_told_at_the_end(small_disk, name, n_frames):
    if n_frames == 2:  # all of it is written at the very end
        (small_disk / "filling").write_bytes(bytes(61440))
    noise = np.random.default_rng(0).integers(0, 256, (n_frames, 96, 96, 3)).astype(np.uint8)
    with pytest.raises(
        OSError, match=rf"{name}: the video could not be written: ffmpeg ended with"
    ):
        write_video(small_disk / name, noise)
    assert [path.name for path in small_disk.iterdir() if path.name != "filling"] == []


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"video\.avi: expected a file name that ends in \.mp4"):
        VideoFile(tmp_path / "video.avi")
    for fps in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="fps: expected a number above 0, got"):
            VideoFile(tmp_path / "video.mp4", fps)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        VideoFile(tmp_path / "file" / "video.mp4")
    frame = frames_of(1)[0]
    with VideoFile(tmp_path / "video.mp4") as file:
        for wrong in (frame[0], frame[..., :2], frame.astype(np.float32), frame[:0]):
            message = re.escape(
                f"expected a picture, uint8 [H, W, 3], got {wrong.dtype} {list(wrong.shape)}"
            )
            with pytest.raises(ValueError, match=message):
                file.write(wrong)
        file.write(frame)
        with pytest.raises(
            ValueError, match=r"size of the first frame, \(48, 64, 3\), got \(46, 64, 3\)"
        ):
            file.write(frame[2:])


def test_without_the_package_the_extra_is_named():
    code = (
        "import sys; sys.modules['imageio_ffmpeg'] = None; from parllel.pictures import *\n"
        "VideoFile('never.mp4')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert (
        last_line
        == "ImportError: videos need imageio-ffmpeg: pip install '.[video]' in a checkout of parllel"
    )


def test_a_folder_keeps_the_newest(tmp_path):
    videos = VideoFolder(tmp_path / "videos", prefix="batch", keep=2, fps=5)
    assert videos.paths() == []
    others = ["step-000000000001.mp4", "batch-notes.mp4", "batch-1.gif", "step-1.mp4.abc.tmp"]
    for number in (30, 7, 100):
        videos(number, frames_of(2))
        for name in others:
            (videos.path / name).touch()
        (videos.path / "batch-000000000005.mp4.0f0f.tmp").touch()  # of a process that was killed
    videos.prune()
    kept = ["batch-000000000030.mp4", "batch-000000000100.mp4"]
    assert [path.name for path in videos.paths()] == kept
    assert {path.name for path in videos.path.iterdir()} == {*kept, *others}
    assert fps_of(videos.paths()[0]) == 5
    everything = VideoFolder(videos.path, prefix="batch", keep=None)
    for number in range(3):
        everything(number, frames_of(1))
    assert len(everything.paths()) == 5
    with pytest.raises(ValueError, match="keep: expected at least 1 or None, got 0"):
        VideoFolder(tmp_path, keep=0)


def test_a_folder_is_checked(tmp_path):
    VideoFolder(tmp_path / "new").check()
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        VideoFolder(tmp_path / "file").check()
