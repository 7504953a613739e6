"""Arrays that are saved from where they are, and loaded into where they belong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parllel.buffers.large_array import LargeArray
from parllel.runs import load_state, save_state
from parllel.runs.state_file import check_state

ARRAYS = [
    np.arange(7, dtype=np.int16),
    np.random.default_rng(0).normal(size=(300, 11, 5)),
    np.zeros((0, 3), np.float32),
    np.array(True),
    np.arange(5_000_000, dtype=np.uint8),  # in several pieces
]


def test_elements_stay_in_the_file_until_they_are_read(tmp_path):
    path = tmp_path / "state.zip"
    state = {
        "first": np.arange(3),
        "large": [LargeArray(array) for array in ARRAYS],
        "large:": {"text": "large:"},
        "last": np.arange(4.0),
    }
    check_state(state)
    save_state(path, state)
    loaded = load_state(path)
    assert loaded["large:"] == {"text": "large:"}
    np.testing.assert_array_equal(loaded["first"], np.arange(3))
    np.testing.assert_array_equal(loaded["last"], np.arange(4.0))
    # Again, from the state that was loaded.
    save_state(tmp_path / "again.zip", loaded)
    assert (tmp_path / "again.zip").read_bytes() == path.read_bytes()
    for one, array in zip(loaded["large"], ARRAYS, strict=True):
        assert (one.shape, one.dtype, one.nbytes) == (array.shape, array.dtype, array.nbytes)
        out = np.ones_like(array)
        one.read_into(out)
        np.testing.assert_array_equal(out, array)


def test_they_are_read_from_memory_too():
    out = np.zeros_like(ARRAYS[1])
    LargeArray(ARRAYS[1]).read_into(out)
    np.testing.assert_array_equal(out, ARRAYS[1])


@pytest.mark.parametrize(
    "out",
    [np.zeros((2, 3)), np.zeros((3, 2), np.float32), np.zeros((2, 3)).T],
    ids=["shape", "dtype", "order"],
)
def test_what_they_cannot_be_read_into(out):
    one = LargeArray(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"expected a contiguous array of shape \(3, 2\)"):
        one.read_into(out)


def test_only_contiguous_arrays():
    with pytest.raises(ValueError, match="expected a contiguous array, which needs no copy"):
        LargeArray(np.zeros((4, 4))[:, ::2])


def test_a_file_that_changes_before_it_is_read(tmp_path):
    path = tmp_path / "state.zip"
    save_state(path, {"a": LargeArray(np.zeros(100))})
    loaded = load_state(path)
    save_state(path, {"a": LargeArray(np.ones(100))})
    with pytest.raises(ValueError, match="the file has changed since the state was loaded"):
        loaded["a"].read_into(np.zeros(100))


def test_damage_is_found_when_the_state_is_loaded(tmp_path):
    path = tmp_path / "state.zip"
    save_state(path, {"a": LargeArray(np.full(100_000, 7, np.uint8))})
    content = bytearray(path.read_bytes())
    content[content.index(b"\x07" * 50_000) + 20_000] = 8
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a saved state, or damaged"):
        load_state(path)


MEASURED = """
import resource, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
from replay_model import Setup, make_buffer
from parllel.buffers.tree import buffer_arrays
from parllel.replays import UniformReplay
from parllel.runs import load_state, save_state
from parllel.runs.state_file import check_state

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

samples = make_buffer(Setup(T=1000, B=8), 720)
replay = UniformReplay(samples, batch_size=8, discount=0.9, seed=0)
for number in range(800):
    if number:
        for array in buffer_arrays(samples):
            array.rotate()
    samples.agent.observation[...] = number
    replay.add(samples)
megabytes = sum(array.block.nbytes for array in buffer_arrays(samples)) / 1e6
before = peak_mb()
path = Path(sys.argv[2])
state = replay.state()
check_state(state)
save_state(path, state)
del state
saved = peak_mb()
np.asarray(samples.agent.observation.full)[...] = 0
replay.load_state(load_state(path))
loaded = peak_mb()
again = np.unique(np.asarray(samples.agent.observation.full)).tolist()
assert again == list(range(80, 800)), again
print(megabytes, before, saved, loaded)
"""


def test_a_replay_is_saved_and_loaded_without_a_second_copy(tmp_path):
    """The process's peak memory, before, after saving and after loading 155 MB."""
    replays = Path(__file__).parents[1] / "replays"
    command = [sys.executable, "-c", MEASURED, str(replays), str(tmp_path / "state.zip")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes, before, saved, loaded = map(float, done.stdout.split())
    assert megabytes > 150
    # A copy of the observations would take 69 MB, one of everything 155.
    assert saved - before < 40
    assert loaded - before < 40
