"""A server whose agent is a policy of the test, in this process."""

from __future__ import annotations

import contextlib

from parllel.distributed.remote.policy_call import PolicyCall
from parllel.distributed.web import Response, Route, ServerSettings, WebError, WebServer, build_app
from parllel.testing import FrequencyPolicy, RockPaperScissorsEnv


class ServedPolicy:
    """Answers as a server of agents does, unless the test has put something else into `replies`.

    Attributes:
        asked: the requests, in order.
        replies: what the next requests get, one after the other: JSON values, a Reply, a WebError, or None
            for what the policy answers.
    """

    def __init__(self, policy):
        self.policy = policy
        self.call = PolicyCall(policy)
        self.asked = []
        self.replies = []

    def answer(self, call):
        body = call.json()
        self.asked.append(body)
        reply = self.replies.pop(0) if self.replies else None
        if isinstance(reply, WebError):
            raise reply
        if reply is not None:
            return reply
        rows = body["observations"]
        if not rows:
            return {"actions": [], "recurrent": self.policy.recurrent}
        return {"actions": self.call(rows)}

    @property
    def rows(self):
        """The rows of all requests that had some."""
        return [body["observations"] for body in self.asked if body["observations"]]

    @contextlib.contextmanager
    def serving(self, **settings):
        app = build_app([Route("/", {"POST": self.answer})], ServerSettings(**settings))
        with WebServer(app) as server:
            yield server.url


def text_reply(text, status=200):
    """Return a reply that is not JSON."""
    return Response(text.encode(), status=status)


def frequency_policy():
    """Return a policy that remembers, and draws nothing but the first move of an episode."""
    env = RockPaperScissorsEnv()
    return FrequencyPolicy(env.observation_space("red"), env.action_space("red"), drawn=0.0)
