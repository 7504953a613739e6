from __future__ import annotations

import gc
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

# How long an example takes says more of the machine than of the code; there is a limit for each test.
# A change is judged on the same examples each time; those of a developer differ from run to run.
settings.register_profile("any machine", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("any machine")

# Tests run side by side: threads of torch that wait for each other's cores cost a sixth of the time.
# Before torch is imported, here and in what tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

FAILED = pytest.StashKey[bool]()
N_TESTS = pytest.StashKey[int]()
SLOWEST = 10  # files, named at the end


def pytest_configure(config: pytest.Config) -> None:
    """Have the fork server import what most children of tests need, which each of them would."""
    from parllel.system.processes.fork_server import preload_in_forkserver

    for name in ("hypothesis", "pytest", "parllel.testing"):
        preload_in_forkserver(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Import the tests with the garbage collector off: nothing of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare for many children and collections: the leak guard asks for these."""
    from parllel.system.processes.fork_server import preload_in_forkserver

    # What tests have imported, most of the processes that they start would.
    for name in ("parllel.distributed.rollouts", "parllel.torch"):
        if name in sys.modules:
            preload_in_forkserver(name)
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most cases of tests that are marked `few` to `make soak`: the same ones in each run."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, found in cases.items():
        n = min(found[0].get_closest_marker("few").args[0], len(found))
        # Drawn, not evenly spaced: of a product of parameters, spacing could meet one value again and again.
        kept = random.Random(name).sample(range(len(found)), n)
        for i, item in enumerate(found):
            if i not in kept:
                item.add_marker("soak")


def freeze_now_and_then(session: pytest.Session) -> None:
    """Take what tests have imported out of later collections, which then take a tenth of the time."""
    number = session.stash[N_TESTS] = session.stash.get(N_TESTS, 0) + 1
    if number % 25 == 0:
        gc.collect()
        gc.freeze()


# A shell that starts the tests in the background has Ctrl-C ignored, and so would all their children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process, thread, descriptor or segment behind."""
    from parllel.testing.leak_guard import LeakGuard

    guard = LeakGuard()
    guard.__enter__()
    yield
    # pytest holds what fixtures gave to the test, buffers for instance, for longer than this.
    request.node.funcargs.clear()
    # What a failed test leaves is a consequence, and its traceback holds on to it: tidy up only.
    failure = AssertionError("the test failed") if request.node.stash.get(FAILED, False) else None
    guard.__exit__(type(failure) if failure else None, failure, None)
    freeze_now_and_then(request.session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files that took longest, their fixtures included."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.write_sep("=", f"slowest {SLOWEST} files, seconds")
    for name, duration in seconds.most_common(SLOWEST):
        terminalreporter.write_line(f"{duration:7.1f} {name}")


@pytest.fixture(scope="session")
def open_fonts(tmp_path_factory):
    """Let matplotlib open its fonts, which it keeps, before any test is asked what it left behind."""
    from parllel.pictures import plot_learning_curve

    path = tmp_path_factory.mktemp("fonts") / "curve.png"
    plot_learning_curve(path, {"training": [(0, 0.0), (1, 1.0)]}, "any")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A headless Chromium for all tests of this process."""
    from chromium import Chromium

    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture
def pages(chromium):
    """What opens pages in that browser; they are closed after the test, which fails if one had an error."""
    with chromium.pages() as pages:
        yield pages


@pytest.fixture(scope="session")
def ray_folder() -> Iterator[str]:
    """A folder for what Ray writes, and its token; processes that tests start use it too."""
    # The paths of sockets are limited to some hundred characters: those of pytest are longer.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    token = os.path.join(folder, "token")
    with open(token, "w") as file:
        file.write(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_TOKEN_PATH", token)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def ray_here(ray_folder: str) -> Iterator[None]:
    """Ray on this machine, with two CPUs to share out, for all tests that ask for it."""
    from parllel.distributed.rollouts.on_ray import RaySession
    from parllel.testing import Service

    # What it has in this process comes with the first calls, and some of it never goes.
    kept = ("socket:*", "anon_inode:*", f"{ray_folder}/*")
    service = Service("ray", threads="ray_*", keeps=kept, grace_s=20.0)
    with service:
        # For what Ray starts, now or later; what tests start beside it is not Ray's.
        with pytest.MonkeyPatch.context() as patch:
            for name, value in service.environment.items():
                patch.setenv(name, value)
            session = RaySession(num_cpus=2, object_store_bytes=200 * 2**20)
        with session:
            service.adopt_new()
            yield
