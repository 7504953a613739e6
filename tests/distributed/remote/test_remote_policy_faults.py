from __future__ import annotations

import socket

import numpy as np
import pytest
from gymnasium import spaces
from served_policy import ServedPolicy, text_reply
from unused_ports import unused_port

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.distributed.remote import RemoteError, RemotePolicy
from parllel.distributed.web import Response, WebError
from parllel.errors import ClosedError
from parllel.policies import PolicyAgent, policy_of
from parllel.policies.basic_policies import FunctionPolicy
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import allocate_samples, build_cages

OBSERVATIONS, ACTIONS = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(4)
SEEN = np.ones((3, 2), np.float32)
TOKEN = "a-token-that-nobody-guesses"


def served_policy(*, recurrent=False):
    policy = FunctionPolicy(lambda observation: 2, OBSERVATIONS, ACTIONS)
    policy.recurrent = recurrent
    return ServedPolicy(policy)


@pytest.fixture
def served():
    return served_policy()


@pytest.fixture
def connect(served):
    """Return a function that makes a policy of the served one; both are closed at the end."""
    policies = []
    with served.serving() as url:

        def made(**arguments):
            settings = {"reconnect_s": 0.0, "timeout_s": 30.0, **arguments}
            policies.append(RemotePolicy(url, OBSERVATIONS, ACTIONS, **settings))
            return policies[-1]

        yield made
        for policy in policies:
            policy.close()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (WebError(403, "no such agent"), r"answered with status 403: no such agent$"),
        (WebError(503, "busy"), r"answered with status 503: busy$"),
        (text_reply("<html>", 502), r"answered with status 502$"),
        (text_reply("<html>"), r"answered with invalid JSON: "),
        (text_reply("[1]"), r'a reply with "actions", as .* got \[1\]$'),
        ({"action": 1}, r"""a reply with "actions", .* got \{'action': 1\}$"""),
        ({"error": "No agent"}, r"answered: No agent$"),
        ({"actions": [1, 2]}, r'environment 4: ERROR: answered without 3 "actions"$'),
        ({"actions": [1, 2, 7]}, r"expected an action of Discrete\(4\) for environment 7: .*7"),
        ({"actions": [1, "rock", 1]}, r"expected an action of Discrete\(4\) for environment 5: "),
        ({"actions": [1, None, 1]}, r"expected an action of Discrete\(4\) for environment 5: "),
        ({"actions": [1, 1, "DeadlineExceeded"]}, r"no action for environment 7: TIMEOUT: "),
        ({"actions": [1, "BaseException::no", 1]}, r"no action for environment 5: ERROR: no$"),
        (
            {"actions": [1, 1, None], "failures": {"2": {"status": "INVALID", "reason": "odd"}}},
            r"no action for environment 7: INVALID: odd$",
        ),
        (Response(b"", 307, headers=((b"location", b"http://a/"),)), r"redirect \(307\)"),
    ],
)
def test_a_reply_without_actions_is_an_error_that_names_the_server(served, connect, reply, message):
    policy = connect()
    served.replies = [reply]
    with pytest.raises(RemoteError, match=rf"^{policy.url}: .*{message}"):
        policy.act(SEEN, [4, 5, 7])
    # The steps of the episodes did not go on, and the next request is none the worse for it.
    np.testing.assert_array_equal(policy.act(SEEN, [4, 5, 7]), [2, 2, 2])
    assert [row["step"] for row in served.rows[-1]] == [0, 0, 0]


def test_a_server_that_cannot_be_reached_or_has_no_agent_is_an_error_at_once(served, connect):
    served.replies = [{"error": "No agent initialized. Call initialize_agents first."}]
    with pytest.raises(RemoteError, match="answered: No agent initialized"):
        connect()
    url = f"http://127.0.0.1:{unused_port()}/"
    with pytest.raises(RemoteError, match=rf"^{url}: cannot be reached: connection refused$"):
        RemotePolicy(url, OBSERVATIONS, ACTIONS, reconnect_s=0.1)


def test_a_server_that_is_started_again_is_reached_again(served):
    port = unused_port()
    with served.serving(port=port) as url:
        policy = RemotePolicy(url, OBSERVATIONS, ACTIONS, reconnect_s=30)
        policy.act(SEEN, range(3))
    with served.serving(port=port):
        served.replies = [WebError(503, "busy"), WebError(429, "busy")]
        assert policy.act(SEEN, range(3)).tolist() == [2, 2, 2]
        policy.close()


def test_an_agent_with_a_memory_is_not_asked_for_the_same_step_twice():
    served, port = served_policy(recurrent=True), unused_port()
    with served.serving(port=port) as url:
        policy = RemotePolicy(url, OBSERVATIONS, ACTIONS, reconnect_s=30)
        # It did not begin with this one.
        served.replies = [WebError(429, "busy")]
        policy.act(SEEN, range(3))
    with pytest.raises(RemoteError, match="cannot be reached"):
        policy.act(SEEN, range(3))
    policy.close()


def test_a_server_that_takes_too_long_is_an_error(served):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(RemoteError, match=rf"^{url}: no reply within 0.2 s$"):
            RemotePolicy(url, OBSERVATIONS, ACTIONS, timeout_s=0.2, reconnect_s=30)


def test_an_error_leaves_a_sampler_by_its_name(served, connect):
    env = CountingEnv()
    served.policy.observation_space = env.observation_space
    served = ServedPolicy(FunctionPolicy(lambda seen: 1, env.observation_space, env.action_space))
    with served.serving() as url:
        policy = RemotePolicy(url, env.observation_space, env.action_space, reconnect_s=0)
        spec, cages = BatchSpec(4, 2), build_cages(CountingEnv, 2, seeds=Seeds(0))
        handler = NumpyHandler(PolicyAgent(policy))
        samples = allocate_samples(cages, spec, handler)
        with BasicSampler(spec, cages, handler, samples) as sampler:
            sampler.collect_batch(0)
            served.replies = [None, None, WebError(500, "a fault")]
            with pytest.raises(RemoteError, match=rf"^{url}: answered with status 500: a fault$"):
                sampler.collect_batch(0)


# ---------------------------------------------------------------------- tokens and arguments


@pytest.mark.parametrize("where", ["bearer", "url"])
def test_a_token_is_sent_and_never_shown(served, where):
    with served.serving(token=TOKEN) as url:
        with pytest.raises(RemoteError, match="answered with status 401"):
            RemotePolicy(url, OBSERVATIONS, ACTIONS, reconnect_s=0)
        secret, given = url, {"token": TOKEN}
        if where == "url":
            secret, given = url.replace("://", f"://:{TOKEN}@"), {}
        policy = RemotePolicy(secret, OBSERVATIONS, ACTIONS, reconnect_s=0, **given)
        policy.act(SEEN, range(3))
        served.replies = [WebError(500, "a fault")]
        with pytest.raises(RemoteError) as caught:
            policy.act(SEEN, range(3))
        assert TOKEN not in str(caught.value)
        assert TOKEN not in policy.url
        policy.close()


def test_a_session_is_named_in_each_request(served, connect):
    connect(session="left").act(SEEN, range(3))
    assert [body["session"] for body in served.asked] == ["left", "left"]


def test_what_does_not_fit_is_refused_before_it_is_sent(served, connect):
    policy = connect()
    with pytest.raises(ValueError, match=r"observation of environment 0: .*shape"):
        policy.act(np.ones((3, 5), np.float32), range(3))
    for numbers in ([0, 1], [0, 1, 1], range(4)):
        with pytest.raises(ValueError, match="env_indices: expected 3 distinct ints"):
            policy.act(SEEN, numbers)
    assert served.rows == []
    policy.close()
    policy.close()
    with pytest.raises(ClosedError, match=rf"RemotePolicy: {policy.url}: used after close"):
        policy.act(SEEN, range(3))
    with pytest.raises(TypeError, match=r"RemotePolicy: .*expected the spaces of the environment"):
        policy_of("http://127.0.0.1:1/")
    with pytest.raises(ValueError, match="timeout_s: expected 0 or more seconds, got -1"):
        connect(timeout_s=-1)
    with pytest.raises(ValueError, match=r"URL: expected http://"):
        RemotePolicy("ftp://a/", OBSERVATIONS, ACTIONS)
