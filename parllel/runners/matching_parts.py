"""Check that the parts of a run belong together: what a script hands to two places is the same in both.

The table in docs/mismatches.md lists what is checked, here and where parts are joined before.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from parllel.agents.agent import Agent
from parllel.agents.handler import Handler
from parllel.algos.algorithm import Algorithm, fields_read
from parllel.algos.off_policy_algorithm import OffPolicyAlgorithm
from parllel.algos.transforming_algorithm import TransformingAlgorithm
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.cages.cage_interface import CageInterface
from parllel.replays.replay import Replay
from parllel.runners.matching_replay import check_no_replay_needed, check_replay
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.cage_columns import CageColumns, seed_keys
from parllel.samplers.eval_sampler import EvalSampler
from parllel.samplers.lost_steps import check_transforms_skip_invalid
from parllel.samplers.publishing_sampler import PublishingSampler
from parllel.samplers.sampler import Sampler
from parllel.seeding import Seeds
from parllel.transforms.field_checks import check_outputs_are_read, missing_field
from parllel.transforms.transform import Transform
from parllel.types import BatchSpec, class_path


def check_parts(
    batch_spec: BatchSpec,
    sampler: Sampler,
    algorithm: Algorithm,
    eval_sampler: Sampler | None = None,
    *,
    also_reads: Sequence[str] = (),
    replay: Replay | None = None,
) -> None:
    """Check that sampler, algorithm, replay and evaluation sampler were built from the same parts.

    Runners call this function. Call it yourself if you write your own training loop. Properties
    that your own parts do not declare are not checked.

    Args:
        also_reads: paths of fields of the samples that your own code reads.
        replay: the replay that an off-policy algorithm learns from.

    Raises:
        ValueError, TypeError: if two parts do not match. The message names both and says what to
            pass instead.

    Warns:
        UserWarning: if environments have equal seeds, which may be intended.
    """
    _check_kinds(sampler, eval_sampler)
    _check_batch_spec(batch_spec, sampler)
    if replay is None:
        check_no_replay_needed(algorithm)
    else:
        check_replay(sampler, algorithm, replay)
    _check_agent(sampler, algorithm)
    _check_parameters(algorithm)
    _check_fields(sampler, algorithm, also_reads, replay)
    if eval_sampler is not None:
        _check_evaluated_agent(sampler, algorithm, eval_sampler)
        _check_evaluated_observations(sampler, eval_sampler)
        _check_evaluated_seeds(sampler, eval_sampler)


def check_publishing(sampler: Sampler, runner: str) -> None:
    """Raise TypeError for a sampler that waits for published weights, as this runner publishes none."""
    # Without an agent there is nothing to publish, as for one that does not learn.
    if isinstance(sampler, PublishingSampler) and sampler.agent is not None:
        raise TypeError(
            f"{runner}: sampler: expected a sampler that acts with the algorithm's agent itself, "
            f"got a {type(sampler).__name__}, which acts with published weights. This runner "
            "publishes none, so the sampler would act with the initial weights forever; use "
            "AsynchronousRunner"
        )


def check_seeds(seeds: Seeds | None, sampler: Sampler) -> None:
    """Warn if no seed was drawn from `seeds`, since the seeds in use would then not be recorded."""
    # Where sampling takes place elsewhere, all seeds may be drawn there.
    elsewhere = isinstance(sampler, PublishingSampler)
    if seeds is not None and not seeds.state()["given"] and not elsewhere:
        warnings.warn(
            "seeds: expected the Seeds that the parts of the run were seeded with, got "
            f"Seeds({seeds.entropy}), of which none was asked for; give the object that build_cages was "
            "given, or None",
            stacklevel=3,
        )


def check_saved_agent(algorithm: Algorithm, state_parts: Mapping[str, Any]) -> None:
    """Raise ValueError if a different agent has the name under which the algorithm's agent is saved."""
    learner, given = _learner(algorithm), state_parts.get("agent")
    if learner is None or given is None or _stands_for(given, learner):
        return
    raise ValueError(
        f"state_parts: 'agent': expected the {type(learner).__name__} of "
        f"{type(algorithm).__name__}, got another {type(given).__name__}, which would be saved in "
        "place of the trained weights; give it another name"
    )


def check_schedule(algorithm: Algorithm, n_steps: int) -> None:
    """Warn if the learning rate reaches 0 before the end of the run."""
    inner = algorithm.algorithm if isinstance(algorithm, TransformingAlgorithm) else algorithm
    steps = getattr(inner, "learning_rate_anneal_steps", None)
    if steps is not None and steps < n_steps:
        warnings.warn(
            f"{type(inner).__name__}: learning_rate_anneal_steps is {steps:,}, and the run has n_steps="
            f"{n_steps:,}: the learning rate is 0 from step {steps:,} on, and nothing is learned; raise "
            "learning_rate_anneal_steps, or give None",
            stacklevel=4,
        )


# ------------------------------------------------------------------ samplers


def _check_kinds(sampler: Sampler, eval_sampler: Sampler | None) -> None:
    if isinstance(sampler, EvalSampler):
        raise TypeError(
            "sampler: expected a sampler for training, got an EvalSampler, whose samples are one "
            "row of actions without exploration; pass it as eval_sampler"
        )
    if eval_sampler is sampler:
        raise ValueError(
            f"eval_sampler: expected a sampler for evaluation, got the {type(sampler).__name__} "
            "used for training; build_eval_sampler(eval_cages, sampler, n_episodes) creates one"
        )
    if isinstance(eval_sampler, BatchSampler):
        raise TypeError(
            "eval_sampler: expected a sampler that plays whole episodes, got a "
            f"{type(eval_sampler).__name__}, which explores and returns only the episodes that "
            "happen to end; build_eval_sampler(eval_cages, sampler, n_episodes) creates one"
        )


def _check_batch_spec(batch_spec: BatchSpec, sampler: Sampler) -> None:
    own = getattr(sampler, "batch_spec", None)
    if isinstance(own, BatchSpec) and own != batch_spec:
        raise ValueError(
            f"batch_spec: expected {own}, the batch_spec of the {type(sampler).__name__}, got "
            f"{batch_spec}; give both the same"
        )


def check_size(batch_spec: BatchSpec, samples: Samples, sampler: Sampler) -> None:
    """Raise ValueError if the first batch of a sampler in another process has the wrong size."""
    T, B = samples.env.done.shape[:2]
    # A batch may end early.
    if B != batch_spec.B or T > batch_spec.T:
        raise ValueError(
            f"batch_spec: expected T={T}, B={B}, the size of the {type(sampler).__name__}'s batches, got "
            f"{batch_spec}; give both the same"
        )


# ------------------------------------------------------------------ agents


def _learner(algorithm: Algorithm) -> Agent | None:
    """Return the agent that is trained; None if the algorithm does not say."""
    # Not every algorithm has one; only what is there can be compared.
    agent = getattr(algorithm, "agent", None)
    return agent if isinstance(agent, Agent) else None


def _actor(sampler: Any) -> Any:
    """Return what acts in a sampler: its handler, or the agent whose weights it publishes; or None."""
    handler = getattr(sampler, "handler", None)
    return handler if isinstance(handler, Handler) else getattr(sampler, "agent", None)


def _stands_for(actor: Any, learner: Agent) -> bool:
    """Return whether an agent, or a handler's, acts with the parameters of another."""
    agent = actor.agent if isinstance(actor, Handler) else actor
    # A copy, as that of CpuSamplingHandler, says of which agent it is.
    known = (agent, getattr(agent, "trained", None), getattr(actor, "trained", None))
    if any(one is learner for one in known):
        return True
    if not isinstance(agent, Agent):
        return False
    try:
        acting, learned = agent.models(), learner.models()
    except NotImplementedError:  # an agent that does not say may well hold the other one
        return True
    ids = {id(model) for model in acting.values()}
    return bool(learned) and all(id(model) in ids for model in learned.values())


def check_published_agent(sampler: PublishingSampler, algorithm: Algorithm) -> None:
    """Raise ValueError for a sampler that publishes the weights of another agent than the algorithm's."""
    # Not every algorithm has an agent.
    learner = _learner(algorithm)
    if learner is not None and sampler.agent is not learner:
        raise ValueError(
            "sampler: expected a sampler with the agent of the algorithm, because the weights "
            f"of the sampler's agent are published, got {sampler.agent!r}; give both the same "
            "agent"
        )


def _check_agent(sampler: Sampler, algorithm: Algorithm) -> None:
    learner, actor = _learner(algorithm), _actor(sampler)
    # With a replay the agent acts too, and explores as the algorithm has it.
    replays = isinstance(algorithm, OffPolicyAlgorithm)
    if not (algorithm.on_policy or replays) or learner is None or actor is None:
        return
    if _stands_for(actor, learner):
        return
    named = _different_names(learner, actor.agent if isinstance(actor, Handler) else actor)
    trains = f"{type(algorithm).__name__} trains a {named[0]}"
    otherwise = (
        "To learn from the actions of another agent, set `trained` of its handler to the trained agent"
        if replays
        else "An algorithm that can learn from the actions of any agent sets on_policy = False"
    )
    raise ValueError(
        f"algorithm: {trains}, but {_described(sampler, actor, named[1])}{_shared(actor, learner)}: learning "
        f"would not change the samples; give both the same agent. {otherwise}"
    )


def _different_names(learner: Any, agent: Any) -> tuple[str, str]:
    """Return the names of two classes, with their modules if only these differ."""
    kinds = type(learner), type(agent)
    if kinds[0] is not kinds[1] and kinds[0].__name__ == kinds[1].__name__:
        return class_path(learner), class_path(agent)
    return kinds[0].__name__, kinds[1].__name__


def _described(sampler: Sampler, actor: Any, name: str) -> str:
    through = f" through a {type(actor).__name__}" if isinstance(actor, Handler) else ""
    return f"the {type(sampler).__name__} samples with another {name}{through}"


def _shared(actor: Any, learner: Agent) -> str:
    """Return a remark for agents with some parameters in common, which look the same and are not."""
    agent = actor.agent if isinstance(actor, Handler) else actor
    both = {id(one) for one in _parameters(agent)} & {id(one) for one in _parameters(learner)}
    return f", with which it shares {len(both)} of its parameters" if both else ""


def _parameters(agent: Any) -> list[Any]:
    parameters = getattr(getattr(agent, "model", None), "parameters", None)
    return list(parameters()) if callable(parameters) else []


def _check_parameters(algorithm: Algorithm) -> None:
    """Raise ValueError for an optimiser without the agent's parameters, as after a change of model."""
    inner = algorithm.algorithm if isinstance(algorithm, TransformingAlgorithm) else algorithm
    learner = _learner(algorithm)
    own = {id(one) for one in _parameters(learner)}
    trained = _trained_parameters(inner)
    if own and trained is not None and own.isdisjoint(id(one) for one in trained):
        raise ValueError(
            f"{type(inner).__name__}: optimizer: expected the parameters of the "
            f"{type(learner).__name__}'s model, got none of them: the model was replaced, or the "
            "optimizer was created for another model; create the algorithm after the model"
        )


def _trained_parameters(algorithm: Algorithm) -> list[Any] | None:
    # Not by a property, which may make the optimiser: that takes a second, and policies are loaded without.
    if hasattr(algorithm, "trained_parameters"):
        return list(algorithm.trained_parameters)
    groups = getattr(getattr(algorithm, "__dict__", {}).get("optimizer"), "param_groups", None)
    return [one for group in groups for one in group["params"]] if groups else None


def _check_evaluated_agent(sampler: Sampler, algorithm: Algorithm, eval_sampler: Sampler) -> None:
    actor = _actor(eval_sampler)
    learner = _learner(algorithm)
    who = f"that {type(algorithm).__name__} trains"
    if learner is None:  # whoever samples then stands for what is trained
        trained = _actor(sampler)
        learner = trained.agent if isinstance(trained, Handler) else trained
        who = f"that the {type(sampler).__name__} samples with"
    if actor is None or learner is None or _stands_for(actor, learner):
        return
    agent = actor.agent if isinstance(actor, Handler) else actor
    raise ValueError(
        f"eval_sampler: expected the {type(learner).__name__} {who}, got another "
        f"{type(agent).__name__}: its returns would say nothing about the training. Give both the "
        "same agent; if the evaluated agent is derived from the trained one, such as an average of "
        "its weights, set `trained` of the evaluation handler to the trained agent"
    )


# ------------------------------------------------------------------ fields and transforms


def _check_fields(
    sampler: Any, algorithm: Algorithm, also_reads: Sequence[str], replay: Replay | None
) -> None:
    samples = getattr(sampler, "samples", None)
    # A sampler in another process shows its samples only with the first batch.
    if not isinstance(samples, Samples):
        return
    transforms = [one for one in getattr(sampler, "transforms", ()) if isinstance(one, Transform)]
    _check_transforms_of(algorithm, transforms)
    reads, readers = fields_read(algorithm, samples), {}
    if replay is not None:
        # All that the algorithm sees of a batch is what the replay draws.
        readers[type(replay).__name__] = replay.reads
        reads = reads or ()
    check_lost_steps(algorithm, samples, replay)
    if reads is None:
        return
    readers |= {type(algorithm).__name__: reads, "also_reads": also_reads}
    for name, paths in readers.items():
        for path in paths:
            _check_there(name, path, samples)
    handler = getattr(sampler, "handler", None)
    # One with other inputs may read any field.
    if isinstance(handler, Handler) and type(handler).agent_inputs is Handler.agent_inputs:
        own = {"your own code": readers.pop("also_reads")}
        check_outputs_are_read(samples, transforms, readers | (own if also_reads else {}))


def check_lost_steps(algorithm: Algorithm, samples: Samples, replay: Replay | None = None) -> None:
    """Raise ValueError for an algorithm, or a transform of it, that would use steps that a crash has lost."""
    # Batches of fragments have versions too; there, whole rows at the end of a column are padding.
    if getattr(samples.env, "aborted", None) is None or "version" in samples.env._fields:
        return
    if replay is not None and "env.valid" in replay.reads:
        return  # it draws no others
    # The algorithm that learns: its transforms may read env.valid where it does not.
    while isinstance(algorithm, TransformingAlgorithm):
        check_transforms_skip_invalid(algorithm.transforms)
        algorithm = algorithm.algorithm
    if "env.valid" not in (fields_read(algorithm, samples) or ()):
        name = type(algorithm).__name__
        raise ValueError(
            f"{name}: expected an algorithm that reads env.valid, because the cages restart dead processes, "
            f"whose last steps are lost. {name}.reads does not name it, so the algorithm would learn from "
            "rows without a step; use PPO, or make the cages without restarts"
        )


def _check_there(reader: str, path: str, samples: Samples) -> None:
    try:
        found = field_at(samples, path)
    except ValueError as error:
        raise ValueError(missing_field(reader, path, error)) from None
    if found is None:
        raise ValueError(missing_field(reader, path))


def _check_transforms_of(algorithm: Algorithm, transforms: Sequence[Transform]) -> None:
    for one in algorithm.transforms if isinstance(algorithm, TransformingAlgorithm) else ():
        if any(one is other for other in transforms):
            raise ValueError(
                f"TransformingAlgorithm: transforms: expected a separate {type(one).__name__}, got "
                "the one of the sampler, which would be applied twice; give it to only one of "
                "them, or create two"
            )


# ------------------------------------------------------------------ evaluation


def _check_evaluated_observations(sampler: Any, eval_sampler: Any) -> None:
    training, own = _spaces(sampler), _spaces(eval_sampler)
    if training is not None and own is not None:
        for what in ("observation", "action"):
            expected, came = getattr(training, what), getattr(own, what)
            if expected != came:
                raise ValueError(
                    f"eval_sampler: cages: expected the {what}s of training, {expected} "
                    f"({training.name}), got {came} ({own.name}); create its environments with the "
                    "same wrappers as for training"
                )
    if not isinstance(eval_sampler, EvalSampler):
        return
    samples = getattr(sampler, "samples", None)
    if isinstance(samples, Samples):
        _check_same_leaves(samples, eval_sampler.samples)
        eval_sampler.compare_with(samples)
    trained = getattr(sampler, "step_transforms", None)
    for transform in eval_sampler.step_transforms if trained is not None else ():
        _check_statistics(transform, trained)


def _check_same_leaves(training: Samples, own: Samples) -> None:
    def leaves(samples: Samples) -> dict[str, Any]:
        found = buffer_leaves(samples.env.observation, "env.observation")
        return {path: (leaf.shape[2:], str(leaf.dtype)) for path, leaf in found}

    expected, came = leaves(training), leaves(own)
    if expected != came:
        raise ValueError(
            f"eval_sampler: samples: expected the observations of training, {expected}, got "
            f"{came}; build_eval_sampler allocates matching samples"
        )


def _check_statistics(transform: Transform, trained: Any) -> None:
    """Raise ValueError for a transform with statistics of its own, which nothing would update."""
    if any(transform is one for one in trained):
        return
    # Without a state two objects do the same; one that was never bound may not have its state yet.
    like = [one for one in trained if type(one) is type(transform) and one.state()]
    if like:
        name = type(transform).__name__
        raise ValueError(
            f"eval_sampler: step_transforms: expected the {name} of the sampler, whose statistics "
            f"training updates, got another {name} with separate statistics; give both the same "
            "object"
        )


def _spaces(sampler: Any) -> Any:
    cages = _cages(sampler)
    return cages[0].spaces if cages else None


def _cages(sampler: Any) -> Sequence[CageInterface]:
    columns = getattr(sampler, "cages", None)
    return columns.cages if isinstance(columns, CageColumns) else ()


def _check_evaluated_seeds(sampler: Any, eval_sampler: Any) -> None:
    training = set(seed_keys(_cages(sampler)))
    both = training & set(seed_keys(_cages(eval_sampler)))
    if both:
        warnings.warn(
            f"eval_sampler: {len(both)} of its environments have seeds of the environments of training, and "
            "would begin with the same episodes; draw them under another name, as build_cages(..., "
            'seeds=seeds, name="evaluation") does',
            stacklevel=5,
        )
