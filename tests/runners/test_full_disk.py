"""A disk that is full, and one that cannot be written, as tests see them that may mount one."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess

import numpy as np
import pytest
import small_run

from parllel.algos import Algorithm
from parllel.logging import (
    CsvWriter,
    JsonlWriter,
    Logger,
    TensorBoardWriter,
    TextWriter,
    Writer,
)
from parllel.runners import Callback, OnPolicyRunner
from parllel.runs import Checkpoints, RunFolder, load_state, save_state
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_setup import SamplerSetup
from parllel_patterns import build_logger, main

FILE_WRITERS = [CsvWriter, JsonlWriter, TensorBoardWriter, TextWriter]


class Memory(Writer):
    """Keeps messages; the terminal of these tests."""

    shows_messages = True

    def __init__(self):
        self.messages, self.steps = [], []

    def write(self, step, values):
        self.steps.append(step)

    def message(self, level, text):
        self.messages.append((level, text))

    def close(self):
        pass


def mounted(folder, options):
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting a small disk needs rights: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def disk(tmp_path):
    yield from mounted(tmp_path / "disk", "size=64k")


@pytest.fixture
def larger_disk(tmp_path):
    yield from mounted(tmp_path / "disk", "size=512k")


@pytest.fixture
def read_only(tmp_path):
    yield from mounted(tmp_path / "read_only", "ro,size=64k")


def fill(disk):
    with (disk / "filler").open("wb", 0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1000))


def free(disk):
    (disk / "filler").unlink()


def steps_in(writer):
    """Return the steps of all rows, after a check that each is whole."""
    if isinstance(writer, CsvWriter):
        with writer.path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert all(row["a" * 40] == row["step"] for row in rows)
        return [int(row["step"]) for row in rows]
    if isinstance(writer, JsonlWriter):
        rows = [json.loads(line) for line in writer.path.read_text().splitlines()]
        return [row["step"] for row in rows if "step" in row]
    if isinstance(writer, TextWriter):
        pattern = r"step (\d+)\n    a{40}  \1\n"
        text = writer.path.read_text()
        assert len(re.findall(pattern, text)) == text.count(" step ")
        return [int(step) for step in re.findall(pattern, text)]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(writer.path))
    accumulator.Reload()
    return [event.step for event in accumulator.Scalars("a" * 40)]


def log(logger, *steps):
    for step in steps:
        logger.log_value("a" * 40, step)
        assert logger.write(step) == {"a" * 40: step}


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_rows_are_lost_while_the_disk_is_full_and_no_longer(disk, kind):
    terminal, writer = Memory(), kind(disk)
    with Logger([terminal, writer]) as logger:
        log(logger, *range(1000, 1010))
        fill(disk)
        log(logger, *range(1010, 1500))
        [(level, text)] = terminal.messages
        assert level == "warning"
        assert re.match(f"{kind.__name__} failed, and is tried again with each row: OSError", text)
        assert "No space left on device" in text
        before = steps_in(writer)  # some fit into the last block of the file
        assert before == list(range(1000, 1000 + len(before)))
        assert 10 <= len(before) < 500
        free(disk)
        log(logger, 1500, 1501)
    missing = 1500 - 1000 - len(before)
    text = f"{kind.__name__} works again; rows that it misses: {missing}"
    assert terminal.messages[1:] == [("notice", text)]
    assert steps_in(writer) == [*before, 1500, 1501]
    resumed = kind(disk)
    resumed.rewind(1500)
    resumed.write(1502, {"a" * 40: 1502})
    if kind is not TextWriter:  # which keeps what happened
        assert steps_in(resumed)[-1] == 1502
        assert kind is TensorBoardWriter or steps_in(resumed) == [*before, 1500, 1502]


def test_all_writers_on_one_full_disk(disk):
    terminal, writers = Memory(), [kind(disk) for kind in FILE_WRITERS]
    with Logger([terminal, *writers]) as logger:
        log(logger, 1000)
        fill(disk)
        log(logger, *range(1001, 1900))
        free(disk)
        log(logger, 1900)
        assert len(logger.writers) == 5
    warnings = sorted(text.split()[0] for level, text in terminal.messages if level == "warning")
    assert warnings == sorted(kind.__name__ for kind in FILE_WRITERS)
    assert [steps_in(writer)[-1] for writer in writers] == [1900] * 4


def test_a_new_column_that_finds_no_room_leaves_the_table_as_it_was(disk):
    terminal, writer = Memory(), CsvWriter(disk)
    with Logger([terminal, writer]) as logger:
        log(logger, *range(1000, 1300))
        fill(disk)
        before = writer.path.read_bytes()
        for step in (1300, 1301):
            logger.log_value("new", step)
            logger.write(step)
        assert writer.path.read_bytes() == before
        assert sorted(os.listdir(disk)) == ["filler", "progress.csv"]
        free(disk)
        logger.log_value("new", 1302)
        logger.write(1302)
    assert len(terminal.messages) == 2
    with writer.path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["new"] for row in rows] == [""] * 300 + ["1302"]


def test_going_back_that_finds_no_room_is_made_up_for(disk):
    terminal, writer = Memory(), CsvWriter(disk)
    with Logger([terminal, writer]) as logger:
        log(logger, *range(1000, 1300))
        fill(disk)
        before = writer.path.read_bytes()
        logger.rewind(1200)
        log(logger, 1201)
        assert writer.path.read_bytes() == before
        free(disk)
        log(logger, 1202)
    assert steps_in(writer) == [*range(1000, 1201), 1202]
    assert [level for level, _ in terminal.messages] == ["warning", "notice"]


def test_a_checkpoint_that_finds_no_room_leaves_the_old_ones(disk):
    checkpoints = Checkpoints(disk / "checkpoints")
    for step in (1, 2):
        checkpoints.save(step, {"a": np.full(1000, step)})
    for size in (6000, 10**6):
        with pytest.raises(OSError, match="No space left on device"):
            checkpoints.save(3, {"a": np.zeros(size)})
        assert sorted(os.listdir(checkpoints.folder)) == [
            "step-000000000001.zip",
            "step-000000000002.zip",
        ]
    path, state = checkpoints.load_newest()
    assert path.name == "step-000000000002.zip"
    assert (state["a"] == 2).all()
    fill(disk)
    with pytest.raises(OSError, match="No space left on device"):
        checkpoints.save(3, {"a": 1})
    free(disk)
    checkpoints.save(3, {"a": 1})
    assert load_state(checkpoints.paths()[-1]) == {"a": 1}


@pytest.mark.parametrize("small", [True, False])
def test_any_size_of_a_state_that_does_not_fit_is_the_same_error(disk, small):
    fill(disk)
    pieces = [np.zeros(100) for _ in range(2000)] if small else [np.zeros(200_000)]
    with pytest.raises(OSError, match=r"No space left on device: '.*/state\.zip'$"):
        save_state(disk / "state.zip", {"pieces": pieces})
    assert os.listdir(disk) == ["filler"]


@pytest.mark.parametrize("when", ["at once", "with the first checkpoint"])
def test_a_training_script_says_in_one_sentence_that_it_cannot_begin(disk, capsys, when):
    def build(config, stack, *arguments):
        runner = small_run.build(config, stack, *arguments)
        fill(disk)
        stack.callback(free, disk)  # that build writes a file when its run is closed
        return runner

    if when == "at once":
        fill(disk)
    with pytest.raises(SystemExit, match=r"^2$"):
        main(build, small_run.Config, base=str(disk / "runs"), name="one", argv=[])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[Errno 28] No space left on device: ")
    assert str(disk) in line


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_a_full_disk_is_an_error_at_the_start(disk, kind):
    fill(disk)
    message = f"{kind.__name__}: expected a writable folder: No space left"
    with pytest.raises(OSError, match=message):
        kind(disk)


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_a_disk_for_reading_alone_is_an_error_at_the_start(read_only, kind):
    message = f"{kind.__name__}: expected a writable folder: Read-only file system"
    with pytest.raises(OSError, match=message):
        kind(read_only)
    with pytest.raises(OSError, match=message):
        kind(read_only / "deeper")


def test_checkpoints_on_a_disk_for_reading_alone_are_an_error(read_only):
    with pytest.raises(OSError, match="Read-only file system"):
        Checkpoints(read_only / "checkpoints").save(1, {})
    with pytest.raises(OSError, match="Read-only file system"):
        Checkpoints(read_only).save(1, {})


class Learn(Algorithm):
    """Count updates."""

    updates = 0

    def optimize_agent(self, elapsed_steps, samples):
        self.updates += 1
        return {"updates": self.updates}

    def state(self):
        return {"updates": self.updates}

    def load_state(self, state):
        self.updates = state["updates"]


class Trouble(Callback):
    """Fill the disk at one step, and free it at another."""

    def __init__(self, disk, begin, end):
        self.disk, self.begin, self.end = disk, begin, end

    def before_sampling(self, elapsed_steps):
        if elapsed_steps == self.begin:
            fill(self.disk)
        if elapsed_steps == self.end:
            free(self.disk)


def test_a_training_goes_on_through_a_full_disk(larger_disk):
    parts = SamplerSetup(5, (CountingEnv, CountingEnv)).build()
    folder = RunFolder(larger_disk, "run")
    terminal = Memory()
    sampler = BasicSampler(parts.batch_spec, parts.cages, parts.handler, parts.samples)
    # The terminal is first, so that it sees each row before a writer remarks on it.
    with sampler, Logger([terminal, *build_logger(folder).writers]) as logger:
        runner = OnPolicyRunner(
            parts.batch_spec,
            sampler,
            Learn(),
            n_steps=3000,
            logger=logger,
            log_interval_steps=10,
            state_parts={"agent": parts.handler.agent},
            folder=folder,
            callbacks=[Trouble(larger_disk, 500, 2500)],
            checkpoint_interval_s=0.0,
        )
        result = runner.run()
    assert result.elapsed_steps == 3000
    assert terminal.steps[-300:] == list(range(10, 3001, 10))
    texts = [text for _, text in terminal.messages]
    for kind in FILE_WRITERS:
        name = kind.__name__
        failures = sum(text.startswith(f"{name} failed") for text in texts)
        # A short row may find room where a long one did not.
        assert 1 <= failures <= 3
        assert sum(text.startswith(f"{name} works again") for text in texts) == failures
    pattern = r"no checkpoint was written; the newest is of step [\d,]+: OSError"
    assert any(re.match(pattern, text) for text in texts)
    path, state = folder.checkpoints.load_newest()
    assert (path.name, state["elapsed_steps"]) == ("step-000000003000.zip", 3000)
    assert state["parts"]["algorithm"] == {"updates": 300}
    assert not list(folder.path.rglob("*.tmp"))
    with (folder.path / "progress.csv").open(newline="") as file:
        steps = [int(row["step"]) for row in csv.DictReader(file)]
    assert steps[:50] == list(range(10, 501, 10))
    assert steps[-50:] == list(range(2510, 3001, 10))
    assert steps == sorted(steps)
    assert len(steps) < 280
