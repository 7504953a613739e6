"""One agent of a parallel environment as an environment of its own; policies play the others.

                     reset(seed)                        step(action of the learner)
    learner          observation -> returned            its action ------------------+
    each opponent    observation -> kept                policy.act_one(kept) --------+-> parallel_env.step
                     policy.reset(seed by name)         next observation -> kept  <--+   -> learner's result

All act on observations of the same instant: what an opponent chooses cannot depend on the learner's move.
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

# Which environment each policy plays in: two would mix up what it remembers of their episodes.
_PLAYS_IN: WeakKeyDictionary[Policy, ReferenceType[Any]] = WeakKeyDictionary()


class OpponentEnv(ParallelEnvWrapper):
    """Be the learner in a parallel environment whose other agents are played by policies.

    Spaces, rewards, flags and info are the learner's own. Its end is the end of the episode, even where
    others could go on. An opponent whose part ends earlier is not asked again; the episode goes on, as it
    does for `ParallelEnvAdapter`, whose rules for agents hold here. Through a cage, attributes and methods of
    the parallel environment are reached as through a wrapper.

    Opponents begin each episode with a seed that is derived, by their names, from the seed of the reset, or
    from one that this environment draws: so episodes depend on the environment's seed alone. What opponents
    remember and draw is part of the environment's state in checkpoints.

    Make one with policies of its own for each environment, within the function that is given to a cage, so
    that it happens where the environment lives::

        def make_env():
            return OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": "runs/ppo-seed0"})

    Args:
        parallel_env: closed with this environment.
        learner: the name of the agent whose environment this is.
        opponents: by name, for each of the other agents, a policy or a specification of one, see `policy_of`.
            A policy may play several agents, but in one environment alone. They are closed with this
            environment.

    Attributes:
        parallel_env, learner: the arguments.
        policies: the opponents' policies, by name.

    Raises:
        ValueError: if there is no agent of that name, if opponents are missing or too many, if a policy
            plays in another environment or for other spaces; and what `policy_of` raises.
    """

    def __init__(
        self, parallel_env: ParallelEnv, learner: str, opponents: Mapping[str, Any]
    ) -> None:
        # It checks who is there, in all that the environment answers.
        self._adapter = adapter = ParallelEnvAdapter(parallel_env)
        self.parallel_env = parallel_env
        self.learner = learner
        if learner not in adapter.agents:
            raise ValueError(f"learner: expected one of {list(adapter.agents)}, got {learner!r}")
        self._names = [name for name in adapter.agents if name != learner]
        if set(opponents) != set(self._names):
            raise ValueError(
                f"opponents: expected policies of {self._names}, got those of {sorted(opponents)}"
            )
        self.observation_space = parallel_env.observation_space(learner)
        self.action_space = parallel_env.action_space(learner)
        self.metadata = adapter.metadata
        self.render_mode = adapter.render_mode
        self._actions = {
            name: ActionAdapter(parallel_env.action_space(name)) for name in self._names
        }
        # What each opponent acts on next; those whose part is over are left out.
        self._seen: dict[str, Tree] = {}
        self._closed = False
        with ExitStack() as stack:
            # What was made of a specification is closed if a later one is refused.
            self.policies = {
                name: self._policy(name, opponents[name], stack) for name in self._names
            }
            stack.pop_all()
        # Only now: a policy that was refused, or met others that were, is free for another environment.
        for policy in self.policies.values():
            _PLAYS_IN[policy] = ref(self)

    def _policy(self, name: str, spec: Any, stack: ExitStack) -> Policy:
        """Return the policy of an opponent, which fits and plays nowhere else."""
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
                f"{what}: this {type(policy).__name__} plays in another OpponentEnv, whose episodes it "
                "would mix with those of this one; make a policy for each environment"
            )
        # After that, as a file may name an object that it has made once, which is not to be closed then.
        if policy is not spec:
            stack.callback(policy.close)
        for kind, expected in spaces.items():
            came = getattr(policy, f"{kind}_space")
            if came is not None and came != expected:
                raise ValueError(
                    f"{what}: expected a policy for the {kind} space {expected}, got one for {came}"
                )
        return policy

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Begin an episode of all agents."""
        super().reset(seed=seed)
        observation, info = self._adapter.reset(seed=seed, options=options)
        # From its own generator where no seed is given, so that the first seed decides all episodes.
        episode = int(self.np_random.integers(2**32)) if seed is None else seed
        for number, name in enumerate(self._names):
            with _named(name, "reset"):
                # By name, as another opponent more or less would change the order.
                drawn = Seeds(episode).integer(f"opponent {name}")
                self.policies[name].reset([number], [drawn])
        self._seen = {name: observation[name] for name in self._names}
        return observation[self.learner], dict(info["info"].get(self.learner, {}))

    def step(self, action: Any) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Let the opponents act on what they saw last, and step with all actions."""
        actions = {self.learner: action}
        for number, name in enumerate(self._names):
            if name in self._seen:
                with _named(name, "act"):
                    chosen = self.policies[name].act_one(self._seen[name], number)
                    actions[name] = self._actions[name].of(chosen)
        observation, _, _, _, info = self._adapter.step(actions)
        # By each opponent's own flags: the adapter's are those of the episode of all.
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
        """Return the state of the environment, of all that opponents remember, and of what they saw last."""
        world = env_state(self._adapter)
        if world is None:
            raise NoStateError(missing_env_state(self._adapter))
        policies = {name: policy.state() for name, policy in self._distinct().items()}
        return {"world": world, "seen": freeze(self._seen), "policies": policies}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned.

        Raises:
            ValueError: if it is of another environment, or was played by policies of other agents.
        """
        policies = self._distinct()
        if set(state["policies"]) != set(policies):
            raise ValueError(
                f"expected the states of the policies of {list(policies)}, got those of "
                f"{sorted(state['policies'])}"
            )
        # After the check, which a state that does not fit must not get past with half of it loaded.
        load_env_state(self._adapter, state["world"])
        for name, policy in policies.items():
            policy.load_state(state["policies"][name])
        self._seen = thaw(state["seen"])

    def _distinct(self) -> dict[str, Policy]:
        """Return each policy once, by the first agent that it plays."""
        # Backwards, so that the first of several names is the one that stays.
        first = {id(self.policies[name]): name for name in reversed(self._names)}
        return {name: self.policies[name] for name in self._names if name in first.values()}

    def close(self) -> None:
        """Close the environment and the policies, each whatever the others do; may be called twice.

        Raises:
            Exception: the first that one of them raised.
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
    """Add a note to errors raised within: whose policy it was, and what it was doing."""
    try:
        yield
    except Exception as error:
        add_note(error, f"in the policy of opponent {name!r}, during {doing}")
        raise
