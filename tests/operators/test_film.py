"""Videos of what workers send as pictures."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import video_reader
from PIL import Image

from parllel.operators.film import Film


def png(height, width, value):
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), value, np.uint8)).save(file, "PNG")
    return {"mode": "png", "data": base64.b64encode(file.getvalue()).decode()}


def test_operators_are_side_by_side_and_stay_when_they_have_ended(tmp_path):
    film = Film(1)
    assert (film.wants(0), film.wants(1)) == (True, False)
    for _ in range(6):
        film.add("a/b:C-v0", 0, "long", png(32, 48, 250))
    rows = np.full((20, 30, 3), 100, np.uint8).tolist()
    film.add("a/b:C-v0", 0, "short", {"mode": "rgb", "rgb": rows})
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
    ],
    ids=str,
)
def test_what_is_no_picture_costs_the_video_alone(tmp_path, payload, said):
    film = Film(1)
    film.add("e", 0, "a", payload)
    (note,) = film.write(tmp_path)
    assert said in note
    assert not list(tmp_path.iterdir())
