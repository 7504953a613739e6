"""What comes to a run by its environment or by a file is nowhere in its folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

# Its environments, in workers, use both secrets, and fail once; the run is resumed after that.
SCRIPT = '''
import os
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from parllel.algos import Algorithm
from parllel.cages import ProcessCage
from parllel.runners import OnPolicyRunner, resume, train
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_setup import SamplerSetup
from parllel_patterns import build_logger


@dataclass(frozen=True)
class Config:
    token_file: str
    n_steps: int = 60
    fail_at: int | None = 40


class ServiceEnv(CountingEnv):
    """Ask a service, which wants both secrets."""

    def __init__(self, token_file):
        super().__init__()
        self.secrets = Path(token_file).read_text().strip(), os.environ["SERVICE_KEY"]
        assert all(len(secret) == 32 for secret in self.secrets)


class Learn(Algorithm):
    def __init__(self, fail_at):
        self.fail_at = fail_at
        self.key = os.environ["SERVICE_KEY"]

    def optimize_agent(self, elapsed_steps, samples):
        warnings.warn("the service is slow")
        if elapsed_steps == self.fail_at:
            raise ConnectionError("the service is gone")
        return {"loss": 0.5}


def build(config, stack, folder, console):
    make_env = partial(ServiceEnv, config.token_file)
    make_cage = partial(ProcessCage, start_method="fork")
    parts = SamplerSetup(5, (make_env, make_env), make_cage=make_cage).build()
    sampler = BasicSampler(parts.batch_spec, parts.cages, parts.handler, parts.samples)
    return OnPolicyRunner(
        parts.batch_spec,
        stack.enter_context(sampler),
        Learn(config.fail_at),
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder)),
        log_interval_steps=20,
        state_parts={"agent": parts.handler.agent},
        folder=folder,
        checkpoint_interval_s=0.0,
    )


if __name__ == "__main__":
    try:
        train(build, Config(sys.argv[1]), base="runs", name="one")
        raise AssertionError("it should have failed")
    except ConnectionError:
        resume("runs/one", changes={"fail_at": None})
'''
KEY, TOKEN = "key-" * 8, "token-" * 5 + "of"


def places_of(text, folder):
    """Return the files below a folder that hold a text, members of zip files included."""
    found = set()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        contents = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        # As text, and as a checkpoint might hold it in an array of characters.
        forms = [text.encode(), text.encode("utf-32-le")]
        if any(form in content for form in forms for content in contents):
            found.add(path.name)
    return found


def test_secrets_stay_out_of_the_folder_and_arguments_do_not(tmp_path):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], check=True, cwd=tmp_path)

    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (tmp_path / "token.txt").write_text(TOKEN)
    git("init", "--quiet")
    git("add", "train.py")
    git("commit", "--quiet", "-m", "any")
    script.write_text(f"{SCRIPT}\n# changed\n")  # so that there is a git.diff
    subprocess.run(
        [sys.executable, script, "token.txt", "--an-argument"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "SERVICE_KEY": KEY},
    )
    folder = tmp_path / "runs" / "one"
    # What is there is found, in files of every sort.
    assert places_of("token.txt", folder) == {"config.json", "run.json", "versions.json"}
    assert places_of("--an-argument", folder) == {"run.json", "versions.json"}
    assert places_of("# changed", folder) == {"git.diff"}
    assert "log.txt" in places_of("the service is slow", folder)
    assert any(name.endswith(".zip") for name in places_of("elapsed_steps", folder))
    assert places_of(KEY, folder) == set()
    assert places_of(TOKEN, folder) == set()
