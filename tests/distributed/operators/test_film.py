"""Videos of what workers send as pictures."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import video_reader
from keeping_viewer import KeepingViewer
from PIL import Image

from parllel.distributed.operators import OperatorConfig
from parllel.distributed.operators.experiments.film import Film
from parllel.distributed.operators.experiments.single_episodes import SingleEpisodes


def png(height, width, value):
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), value, np.uint8)).save(file, "PNG")
    return {"mode": "png", "data": base64.b64encode(file.getvalue()).decode()}


def black(side):
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    return {"mode": "png", "data": base64.b64encode(file.getvalue()).decode()}


def test_operators_are_side_by_side_and_stay_when_they_have_ended(tmp_path):
    film = Film(1)
    assert (film.wants("a", 0), film.wants("a", 1)) == (True, False)
    for _ in range(6):
        film.see("long", "a/b:C-v0", 0, 0, png(32, 48, 250))
    rows = np.full((20, 30, 3), 100, np.uint8).tolist()
    film.see("short", "a/b:C-v0", 0, 0, {"mode": "rgb", "rgb": rows})
    assert film.write(tmp_path) == []
    frames = video_reader.read(tmp_path / "a-b-C-v0-episode-0.mp4")
    assert frames.shape[0] == 6
    for frame in frames:  # below the titles of 16 pixels; lossy
        assert frame[24:40, 8:40].mean() == pytest.approx(250, abs=6)
        assert frame[24:32, 60:76].mean() == pytest.approx(100, abs=6)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (None, "its worker sends no frames"),
        ({"mode": "png", "data": 3}, "its frames cannot be read"),
        ({"mode": "rgb", "rgb": "x"}, "its frames cannot be read"),
        ({"mode": "rgb", "rgb": [[[300, 0, 0]]]}, "its frames cannot be read"),
        ({"mode": "png", "data": "!"}, "no video of e: "),
        ({"mode": "png", "data": base64.b64encode(b"none").decode()}, "UnidentifiedImageError"),
        # 8 KB, of which 192 MB of pixels would be made.
        (black(8000), "expected a picture of at most 16,777,216 pixels, got 8000x8000"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_no_picture_costs_the_video_alone(tmp_path, payload, said):
    film = Film(1)
    film.see("a", "e", 0, 0, payload)
    (note,) = film.write(tmp_path)
    assert said in note
    assert not list(tmp_path.iterdir())


def test_an_environment_that_draws_nothing_is_played_although_a_viewer_wants_pictures(launcher):
    viewer = KeepingViewer()
    config = OperatorConfig(
        "baseline",
        "a",
        "CartPole-v1",
        policy="random",
        max_steps=2,
        env_kwargs={"render_mode": None},
    )
    handle = launcher.launch_operator(config, "a", interactive=True)
    episodes = SingleEpisodes(config, start_timeout_s=60, step_timeout_s=20, viewers=[viewer])
    (outcome,) = episodes.play(handle, 3, 0, before_step=lambda: None, record_step=lambda _: None)
    assert (outcome.status, outcome.episode_length, outcome.failure) == ("ended", 2, None)
    assert viewer.seen == [("a", "CartPole-v1", 3, step, None) for step in range(3)]
