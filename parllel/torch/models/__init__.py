"""Models: from observations to parameters of a distribution over actions, and values.

A model is a trunk and a head: `PgModel` takes the shape of observations or an encoder of them, and a head for
the actions; `RecurrentPgModel` has a memory between the two.

    PgModel((4,), CategoricalHead(2), hidden_sizes=(64, 64), seed=1)
    PgModel(CnnEncoder(...), GaussianHead((3,), initial_log_std=0.0), hidden_sizes=(), seed=generator)

Write your own as a module whose `forward` takes the observation, [N, ...] or a tree of such, and
returns `(params, value)`: what the agent's distribution wants (see `parllel.torch.distributions`)
and the values [N]. Further arguments that a handler adds arrive by keyword:

    class TeamModel(nn.Module):
        def __init__(self, n_agents: int, n_actions: int) -> None:
            super().__init__()
            self.embed = nn.Embedding(n_agents, 8)
            self.policy = nn.Linear(12, n_actions)
            self.critic = nn.Linear(12, 1)

        def forward(self, observation, agent_id):
            x = torch.cat([observation, self.embed(agent_id)], dim=-1)
            return self.policy(x), self.critic(x).squeeze(-1)
"""

__all__: list[str] = []
