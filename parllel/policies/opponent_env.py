"""A single-agent view of a parallel environment; policies play the other agents.

                     reset(seed)                        step(action of the learner)
    learner          observation -> returned            its action ------------------+
    each opponent    observation -> kept                policy.act_one(kept) --------+-> parallel_env.step
                     policy.reset(seed by name)         next observation -> kept  <--+   -> learner's result

All agents act on observations of the same step: an opponent's action cannot depend on the learner's move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from parllel.envs.parallel_env import ParallelEnv
from parllel.envs.parallel_env_adapter import ParallelEnvAdapter
from parllel.envs.parallel_env_wrapper import ParallelEnvWrapper
from parllel.envs.states.env_state import env_state, load_env_state, missing_env_state
from parllel.envs.states.layer_state import NoStateError
from parllel.envs.states.plain_values import freeze, thaw
from parllel.errors import add_note, first_of
from parllel.policies.action_adapter import ActionAdapter
from parllel.policies.policy import Policy
from parllel.policies.specification import policy_of
from parllel.seeding import Seeds
from parllel.types import State, Tree

# The environment that each policy plays in. In two at once it would mix up their episodes.
_PLAYS_IN: WeakKeyDictionary[Policy, ReferenceType[Any]] = WeakKeyDictionary()


class OpponentEnv(ParallelEnvWrapper):
    """Environment of one agent, the learner, in a parallel environment. Policies play the other agents.

    Spaces, rewards, flags and info are the learner's. The episode ends when the learner's part does, even if
    others could continue. An opponent whose part ends earlier no longer acts, and the episode goes on. The
    rules of `ParallelEnvAdapter` for agents apply. Through a cage, attributes and methods of the parallel
    environment are accessible as through a wrapper.

    Each episode seeds the opponents from the seed of the reset, or a drawn one, and their names, so episodes
    depend only on the environment's seed. The opponents' memory and generators are part of the environment's
    state in checkpoints.

    Create separate policies for each environment, inside the factory that is passed to a cage, so that they
    live in the environment's process::

        def make_env():
            return OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": "runs/ppo-seed0"})

    Args:
        parallel_env: the parallel environment; closed together with this environment.
        learner: name of the agent that this environment represents.
        opponents: a policy or a specification (see `policy_of`) for each other agent, by name. A policy may
            play several agents, but only in one environment. Policies are closed with this environment.

    Attributes:
        parallel_env, learner: the arguments.
        policies: the opponents' policies, by name.

    Raises:
        ValueError: if there is no agent of that name, for missing or unknown opponents, and for a policy that
            plays in another environment or has other spaces. `policy_of` may raise further errors.
    """

    def __init__(
        self, parallel_env: ParallelEnv, learner: str, opponents: Mapping[str, Any]
    ) -> None:
        # The adapter checks which agents appear in the environment's results.
        self._adapter = adapter = ParallelEnvAdapter(parallel_env)
        self.parallel_env = parallel_env
        self.learner = learner
        if learner not in adapter.agents:
            raise ValueError(f"learner: expected one of {list(adapter.agents)}, got {learner!r}")
        self._names = [name for name in adapter.agents if name != learner]
        if set(opponents) != set(self._names):
            raise ValueError(
                f"opponents: expected policies for {self._names}, got policies for "
                f"{sorted(opponents)}"
            )
        self.observation_space = parallel_env.observation_space(learner)
        self.action_space = parallel_env.action_space(learner)
        self.metadata = adapter.metadata
        self.render_mode = adapter.render_mode
        self._actions = {
            name: ActionAdapter(parallel_env.action_space(name)) for name in self._names
        }
        # The observation each opponent acts on next, without those whose part is over.
        self._seen: dict[str, Tree] = {}
        self._closed = False
        with ExitStack() as stack:
            # Policies made here are closed if a later specification is rejected.
            self.policies = {
                name: self._policy(name, opponents[name], stack) for name in self._names
            }
            stack.pop_all()
        # Registered last: after an error, the policies stay free for another environment.
        for policy in self.policies.values():
            _PLAYS_IN[policy] = ref(self)

    def _policy(self, name: str, spec: Any, stack: ExitStack) -> Policy:
        """Return the policy of an opponent, after checking that it fits and does not play elsewhere."""
        what, world = f"opponent {name!r}", self.parallel_env
        spaces = {
            "observation": world.observation_space(name),
            "action": world.action_space(name),
        }
        with _named(name, "policy_of"):
            policy = policy_of(spec, spaces["observation"], spaces["action"])
        other = _PLAYS_IN.get(policy)
        if other is not None and other() is not None:
            raise ValueError(
                f"{what}: this {type(policy).__name__} already plays in another OpponentEnv, and "
                "would mix up their episodes. Create a separate policy for each environment"
            )
        # Closed by the stack only after this check: a file may share one object between environments,
        # which must then stay open.
        if policy is not spec:
            stack.callback(policy.close)
        for kind, expected in spaces.items():
            actual = getattr(policy, f"{kind}_space")
            if actual is not None and actual != expected:
                raise ValueError(
                    f"{what}: expected a policy for the {kind} space {expected}, got one for {actual}"
                )
        return policy

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Begin an episode of all agents."""
        super().reset(seed=seed)
        observation, info = self._adapter.reset(seed=seed, options=options)
        # From its own generator if no seed is given, so the first seed determines all episodes.
        episode = int(self.np_random.integers(2**32)) if seed is None else seed
        for number, name in enumerate(self._names):
            with _named(name, "reset"):
                # By name, so that adding an opponent does not reseed the others.
                drawn = Seeds(episode).integer(f"opponent {name}")
                self.policies[name].reset([number], [drawn])
        self._seen = {name: observation[name] for name in self._names}
        return observation[self.learner], dict(info["info"].get(self.learner, {}))

    def step(self, action: Any) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Step with the learner's action and the opponents' actions on their last observations."""
        actions = {self.learner: action}
        for number, name in enumerate(self._names):
            if name in self._seen:
                with _named(name, "act"):
                    chosen = self.policies[name].act_one(self._seen[name], number)
                    actions[name] = self._actions[name].of(chosen)
        observation, _, _, _, info = self._adapter.step(actions)
        # Each opponent's own flags: the adapter's are for the episode as a whole.
        over = {name: info["terminated"][name] or info["truncated"][name] for name in self._names}
        self._seen = {name: observation[name] for name in self._seen if not over[name]}
        return (
            observation[self.learner],
            info["reward"][self.learner],
            info["terminated"][self.learner],
            info["truncated"][self.learner],
            dict(info["info"].get(self.learner, {})),
        )

    def state(self) -> State:
        """Return the state of the environment and of the policies, and the opponents' last observations."""
        world = env_state(self._adapter)
        if world is None:
            raise NoStateError(missing_env_state(self._adapter))
        policies = {name: policy.state() for name, policy in self._distinct().items()}
        return {"world": world, "seen": freeze(self._seen), "policies": policies}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if the state belongs to another environment or to policies of other agents.
        """
        policies = self._distinct()
        if set(state["policies"]) != set(policies):
            raise ValueError(
                f"expected the states of the policies for {list(policies)}, got the states of "
                f"policies for {sorted(state['policies'])}"
            )
        # After the check, so that a state that does not fit is not half loaded.
        load_env_state(self._adapter, state["world"])
        for name, policy in policies.items():
            policy.load_state(state["policies"][name])
        self._seen = thaw(state["seen"])

    def _distinct(self) -> dict[str, Policy]:
        """Return each policy once, under the first agent that it plays."""
        # Backwards, so that the first of several names wins.
        first = {id(self.policies[name]): name for name in reversed(self._names)}
        return {name: self.policies[name] for name in self._names if name in first.values()}

    def close(self) -> None:
        """Close the environment and all policies, even if some of them fail. Idempotent.

        Raises:
            Exception: the first error of any of them.
        """
        if self._closed:
            return
        self._closed = True
        errors = []
        closes = [self._adapter.close, *(policy.close for policy in self._distinct().values())]
        for close in closes:
            try:
                close()
            except Exception as error:
                errors.append(error)
        for policy in self.policies.values():
            _PLAYS_IN.pop(policy, None)
        if errors:
            raise first_of(errors)


@contextmanager
def _named(name: str, doing: str) -> Iterator[None]:
    """Add a note to errors raised within: the agent's name and what its policy was doing."""
    try:
        yield
    except Exception as error:
        add_note(error, f"in the policy of opponent {name!r}, during {doing}")
        raise
