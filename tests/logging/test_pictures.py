"""Histograms and pictures, as TensorBoard itself reads them."""

from __future__ import annotations

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    COMPRESSED_HISTOGRAMS,
    HISTOGRAMS,
    IMAGES,
    EventAccumulator,
)

from parllel.logging import JsonlWriter, Logger, TensorBoardWriter, Writer
from parllel.pictures.png import png_bytes


def read(folder):
    accumulator = EventAccumulator(
        str(folder), {COMPRESSED_HISTOGRAMS: 0, HISTOGRAMS: 0, IMAGES: 0}
    )
    accumulator.Reload()
    return accumulator


def test_a_histogram_is_that_of_the_finite_numbers(tmp_path):
    values = np.random.default_rng(0).normal(3.0, 2.0, (50, 7))
    with Logger([TensorBoardWriter(tmp_path)]) as logger:
        assert logger.shows_pictures
        for step in (10, 20):
            logger.histogram(step, "actions", np.where(values > 0, values * step, np.nan))
        logger.histogram(30, "empty", np.full(3, np.inf))
        logger.histogram(30, "same", [True, True])
    accumulator = read(tmp_path)
    assert accumulator.Tags()["histograms"] == ["actions", "same"]
    finite = values[values > 0]
    for event, step in zip(accumulator.Histograms("actions"), (10, 20), strict=True):
        found, expected = event.histogram_value, finite * step
        assert event.step == step
        assert found.num == expected.size
        assert (found.min, found.max) == (expected.min(), expected.max())
        np.testing.assert_allclose(
            [found.sum, found.sum_squares], [expected.sum(), (expected**2).sum()]
        )
        limits = np.array(found.bucket_limit)
        assert sum(found.bucket) == expected.size
        for limit, below in zip(limits, np.cumsum(found.bucket), strict=True):
            # The last bin includes its limit, and rounding may move one number at the others.
            assert abs((expected <= limit).sum() - below) <= 1
    (same,) = accumulator.Histograms("same")
    assert (same.histogram_value.min, same.histogram_value.num) == (1.0, 2.0)


def test_a_picture_is_kept_as_it_is(tmp_path):
    picture = png_bytes(np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8))
    with Logger([TensorBoardWriter(tmp_path)]) as logger:
        logger.picture(5, "evaluation", picture)
    (event,) = read(tmp_path).Images("evaluation")
    assert (event.step, event.encoded_image_string) == (5, picture)


def test_what_follows_the_checkpoint_is_forgotten(tmp_path):
    with Logger([TensorBoardWriter(tmp_path)]) as logger:
        for step in (10, 20, 30):
            logger.log_value("loss", step)
            logger.write(step)
            logger.histogram(step, "actions", [step])
        logger.rewind(20)
        logger.histogram(40, "actions", [40])
    assert [event.step for event in read(tmp_path).Histograms("actions")] == [10, 20, 40]


def test_other_writers_take_none(tmp_path):
    with Logger([JsonlWriter(tmp_path)]) as logger:
        assert not logger.shows_pictures
        logger.histogram(1, "actions", [1, 2])
        logger.picture(1, "evaluation", b"GIF89a")
        logger.write(1)
    assert [path.read_text() for path in tmp_path.iterdir()] == [""]


class Failing(Writer):
    shows_pictures = True

    def write(self, step, values):
        raise OSError("full")

    def message(self, level, text):
        pass

    def histogram(self, step, key, values):
        raise OSError("full")

    def close(self):
        pass


def test_a_writer_that_fails_is_warned_of_once(capsys):
    with Logger([Failing()]) as logger:
        for step in range(3):
            logger.histogram(step, "actions", [1])
        assert not logger.shows_pictures
    assert capsys.readouterr().err.count("Failing failed, and is tried again with each row") == 1


def test_what_is_refused(tmp_path):
    with Logger([TensorBoardWriter(tmp_path)]) as logger:
        with pytest.raises(
            TypeError, match="'a': expected an array of real numbers, got complex128"
        ):
            logger.histogram(1, "a", [1j])
        with pytest.raises(TypeError, match=r"step: expected an integer, got 1\.5"):
            logger.histogram(1.5, "a", [1])
        with pytest.raises(ValueError, match="a name that does not begin with"):
            logger.histogram(1, "=a", [1])
        with pytest.raises(ValueError, match="'a': expected a PNG or GIF file, got b'<svg>'"):
            logger.picture(1, "a", b"<svg>")
    with pytest.raises(RuntimeError, match="used after close"):
        logger.histogram(1, "a", [1])
