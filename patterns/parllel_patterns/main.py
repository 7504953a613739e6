"""The command line of a training script."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from parllel.errors import notes_of
from parllel.runners import Build, is_own_error, one_sentence, resume, train, within_training
from parllel.runs import RunFolder, RunResult, config_values
from parllel_patterns.curve_file import CurveFile
from parllel_patterns.flags import early_flag, parse_flags

INTERRUPTED = 130  # 128 plus the number of SIGINT, as in shells


def main(
    build: Build,
    config_class: type,
    *,
    base: str,
    name: str | Callable[[Any], str] | None = None,
    argv: Sequence[str] | None = None,
    curve: CurveFile | None = None,
    defaults: Any = None,
) -> tuple[RunResult, RunFolder]:
    """Train with the config from the command line. Prints and returns the result.

    Every field of the config is a flag: `--n-steps 1000 --parallel --hidden-sizes 64 64
    --ppo.learning-rate 3e-4 --ppo.kl-limit None`. `--runs DIR` is the parent of the run's folder.
    `--resume RUN` continues a run; other flags change its config.

    Args:
        build: builds a run from a config.
        config_class: a frozen dataclass. Its docstring and the docstring of `build`'s module form the help.
        base: default value of `--runs`.
        name: name of the run's folder, or a function that returns it given the config; defaults to
            the time.
        argv: command-line arguments; defaults to those of the process.
        curve: CurveFile that receives the value of the flag `--curve`. None omits the flag.
        defaults: a config whose values the flags change, such as `tuned("cartpole-ppo")`; None for the
            defaults of the class.

    Raises:
        SystemExit: with status 2 and one sentence on standard error if the command line is invalid, a part
            of parllel rejects a value passed by `build`, or the run's folder cannot be written; with status
            0 after `--help`; with status 130 for Ctrl-C while the run is built, or a second Ctrl-C.
        ImportError: without tyro; names the extra.
        TypeError: if `defaults` is not a config of the class.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    with _ended_by_ctrl_c():
        about = _about(build, config_class)
        return _main(build, config_class, base, name, argv, about, curve, defaults)


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Context in which KeyboardInterrupt ends the script with its last note instead of a traceback."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for note in notes_of(interrupt)[
            -1:
        ]:  # earlier notes describe the code that was interrupted
            print(note, file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def _main(
    build: Build,
    config_class: type,
    base: str,
    name: str | Callable[[Any], str] | None,
    argv: Sequence[str],
    about: str,
    curve: CurveFile | None,
    defaults: Any,
) -> tuple[RunResult, RunFolder]:
    if defaults is not None and not isinstance(defaults, config_class):
        raise TypeError(f"main: defaults: expected a {config_class.__name__}, got {defaults!r}")
    console = Console()
    # First, because the resumed run's config gives the defaults of all other flags.
    resumed = early_flag(argv, "--resume")
    before = defaults if resumed is None else _config_of(resumed, config_class)
    flag = None if curve is None else curve.HELP
    arguments = parse_flags(config_class, base, argv, before, about, flag)
    if curve is not None:
        curve.name = arguments.curve
    if resumed is None:
        config = arguments.config
        name = name(config) if callable(name) else name
        run = partial(train, build, config, base=arguments.runs, name=name)
    else:
        # Only differences, because a resumed run records changes in its history.
        changes = _changes(config_values(before), config_values(arguments.config))
        run = partial(
            resume, arguments.resume, changes=changes, build=build, config_class=config_class
        )
    try:
        result, folder = run(console=console)
    except (OSError, ValueError) as error:
        # Errors that the user can fix: a full disk, an unwritable folder, a value that parllel rejects.
        if within_training(error) or not (isinstance(error, OSError) or is_own_error(error)):
            raise
        said = one_sentence(error, not_users=str(Path(__file__).parent))
        print(said, file=sys.stderr)
        raise SystemExit(2) from error
    _report(console, result, folder)
    return result, folder


def main_for_each(
    build: Build,
    config_class: type,
    each: Mapping[str, str],
    *,
    base: str,
    name: str | Callable[[Any], str] | None = None,
    argv: Sequence[str] | None = None,
    curve: CurveFile | None = None,
    defaults: Any = None,
) -> list[tuple[RunResult, RunFolder]]:
    """Run `main` for each value of some flags, and return the results of all runs in order.

    each: flags that accept several values, mapped to the flag that receives each value: with
        `{"--seeds": "--seed"}`, `--seeds 0 1 2` trains three times. Several such flags train every
        combination. A flag that is not given adds none.

    Raises:
        SystemExit: for the reasons given in `main`, and with a run's exit status if a signal
            stopped it.
        TypeError: if `defaults` is not a config of the class.
    """
    # Otherwise argparse would read `--seed 0` as an abbreviation of `--seeds 0`.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for i, several in enumerate(each):
        parser.add_argument(several, nargs="+", dest=f"values{i}", default=[])
    given, others = parser.parse_known_args(argv)
    pairs = [
        # A missing flag counts as one empty choice, because a product with an empty factor is empty.
        [[one, value] for value in getattr(given, f"values{i}")] or [[]]
        for i, one in enumerate(each.values())
    ]
    about = _about(build, config_class)
    for several, one in each.items():
        about += f"\n\n{several} VALUE [VALUE ...] makes a run for each value of {one}."
    done = []
    for flags in itertools.product(*pairs):
        own = [*others, *itertools.chain(*flags)]
        with _ended_by_ctrl_c():
            done.append(_main(build, config_class, base, name, own, about, curve, defaults))
        if done[-1][0].exit_status:  # stopped by a signal, not a callback: skip the other runs
            raise SystemExit(done[-1][0].exit_status)
    return done


def _about(build: Build, config_class: type) -> str:
    return sys.modules[build.__module__].__doc__ or config_class.__doc__ or ""


def _config_of(path: str, config_class: type) -> Any:
    try:
        folder = RunFolder.open(path)
        if folder.in_use:
            raise ValueError(f"{path}: another process is using this run; wait until it has ended")
        record = folder.read_record()
        record.source()  # rejects a run of another kind before its config fails to fit
        return record.read_config(config_class=config_class)
    except (OSError, ValueError, TypeError) as error:
        print(f"--resume: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Return the values of `after` that differ from `before`, by path."""
    found: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and value.keys() == old.keys():
            found.update(_changes(old, value, f"{at}{name}."))
        elif value != old:
            found[at + name] = value
    return found


def _report(console: Console, result: RunResult, folder: RunFolder) -> None:
    how = "Solved" if result.solved else "Finished"
    if result.stopped_by is not None:
        how = f"Stopped by {result.stopped_by}"
    lines = [f"{how} after {result.elapsed_steps:,} environment steps"]
    # NaN without an evaluation.
    if math.isfinite(result.evaluation_return):
        lines[0] += f": mean return {result.evaluation_return:.1f} in the last evaluation"
    # Otherwise the best evaluation is the last one, whose return the line already shows.
    if result.best is not None and result.best[0] < result.elapsed_steps:
        lines[0] += f", {result.best[1]:.1f} in the best, at step {result.best[0]:,}"
    if result.stopped_by is not None:
        lines.append(f"Continue with: parllel resume {folder.path}")
    lines.append(f"Everything about this run is in {folder.path}")
    # The run succeeded even if its output cannot be written; rich exits when the pipe is closed.
    with contextlib.suppress(OSError, SystemExit):
        for line in lines:
            # Unformatted: rich reads brackets as markup, and a wrapped path cannot be copied.
            console.print(line, soft_wrap=True, markup=False, highlight=False)
