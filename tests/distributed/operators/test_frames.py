from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from asked_runtime import Counting
from PIL import Image

from parllel.distributed.operators.protocol.frames import frame_of


class Showing(Counting):
    def __init__(self, picture):
        super().__init__()
        self.picture = picture

    def render(self):
        return self.picture


NOISE = np.random.default_rng(0).integers(0, 256, (5, 7, 4), np.uint8)


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (NOISE[..., :3], NOISE[..., :3]),
        (NOISE, NOISE[..., :3]),  # what is transparent is left out
        (NOISE[..., 0], np.repeat(NOISE[..., :1], 3, -1)),
        (np.asfortranarray(NOISE[::-1, ::-1, :3]), NOISE[::-1, ::-1, :3]),
    ],
)
def test_both_modes_show_the_same_picture(picture, expected):
    lists = frame_of(Showing(picture), "rgb")
    png = frame_of(Showing(picture), "png")
    assert (lists["width"], lists["height"]) == (png["width"], png["height"]) == (7, 5)
    assert lists["rgb"] == expected.tolist()
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(png["data"]))))
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(
    "picture", [None, "text", NOISE.astype(float), NOISE[0, 0], NOISE[..., :2]]
)
@pytest.mark.parametrize("mode", ["png", "rgb"])
def test_what_is_no_picture_is_refused(picture, mode):
    with pytest.raises(ValueError, match=r"frame: expected uint8 \[height, width, 3\]"):
        frame_of(Showing(picture), mode)
