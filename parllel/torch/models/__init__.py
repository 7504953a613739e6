"""Models that map observations to parameters of an action distribution, and to values.

A model consists of a trunk and a head: `PgModel` takes the shape of observations or an encoder, and a head
for the actions; `RecurrentPgModel` has a recurrent layer between the two.

    PgModel((4,), CategoricalHead(2), hidden_sizes=(64, 64), seed=1)
    PgModel(CnnEncoder(...), GaussianHead((3,), initial_log_std=0.0), hidden_sizes=(), seed=generator)

A custom model is a module whose `forward` takes the observation ([N, ...], or a tree of such arrays) and
returns `(params, value)`: the parameters of the agent's distribution (see `parllel.torch.distributions`)
and the values [N]. Further inputs that a handler adds are passed by keyword:

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
