"""Operators on the page: launched by its dialog, reset, stepped, played, stopped; one dies, one is slow."""

from __future__ import annotations

import time

import gymnasium
import numpy as np
import pytest
from chromium import expect
from dashboard_server import CARTPOLE, SLOW, SQUARES
from scenes import picture


def test_three_operators_are_launched_reset_stepped_and_played(shown):
    shown.add("random", "baseline", CARTPOLE, policy="random")
    shown.add("noop", "baseline", CARTPOLE, policy="noop")
    shown.add("squares", "baseline", SQUARES, policy="noop", env_kwargs={"length": 4})
    expect(shown.page.locator("#cards > article")).to_have_count(3)
    shown.reset(5)
    for name in ("random", "noop", "squares"):
        shown.expect(name, status="ready", seed=5, step=0, episode=0)
    shown.page.click("#step-all")
    for name in ("random", "noop", "squares"):
        shown.expect(name, status="ready", step=1, reward=1, episode_reward=1)
    shown.page.select_option("#speed", "30")
    shown.page.click("#play")
    expect(shown.page.locator("#phase")).to_have_attribute("data-phase", "playing")
    shown.expect("squares", status="ended", step=4, episode_reward=4, n_ended=1, mean_reward=4)
    # The others go on to the ends of theirs.
    shown.expect("random", status="ended", n_ended=1)
    shown.expect("noop", status="ended", n_ended=1)
    # Doing nothing is the same in this process.
    assert shown.number("noop", "episode-reward") == noop_return(5)
    # The next seed.
    shown.reset()
    shown.expect("noop", status="ready", seed=6, step=0, episode=1)


def noop_return(seed):
    """Return the total reward of an episode in which nothing is done."""
    with gymnasium.make(CARTPOLE) as env:
        env.reset(seed=seed)
        total = 0.0
        while True:
            _, reward, terminated, truncated, _ = env.step(0)
            total += reward
            if terminated or truncated:
                return total


@pytest.mark.parametrize(("name", "env_id"), [("drawn", SQUARES), ("played", CARTPOLE)])
def test_frames_are_those_that_the_environment_draws(shown, name, env_id):
    shown.add(name, "baseline", env_id, policy="noop")
    shown.reset(3)
    shown.expect(name, status="ready")
    for step in (1, 2, 3):
        shown.page.click("#step-all")
        shown.expect(name, step=step)
        np.testing.assert_array_equal(shown.picture(name, step), drawn(env_id, 3, step))


def drawn(env_id, seed, steps):
    """Return what an environment draws after some steps in which nothing is done."""
    if env_id == SQUARES:
        return picture(seed, steps)
    with gymnasium.make(env_id, render_mode="rgb_array") as env:
        env.reset(seed=seed)
        for _ in range(steps):
            env.step(0)
        return env.render()


def test_the_death_of_one_shows_on_its_card_alone(shown, server):
    for name in ("a", "b", "c"):
        shown.add(name, "baseline", SQUARES, policy="noop")
    shown.reset(0)
    for name in ("a", "b", "c"):
        shown.expect(name, status="ready")
    shown.page.select_option("#speed", "30")
    shown.page.click("#play")
    shown.until(lambda: (shown.number("b", "step") or 0) > 2)
    server.worker("b").kill()
    shown.expect("b", status="died")
    expect(shown.field("b", "message")).to_contain_text("killed by SIGKILL")
    at = shown.number("a", "step")
    shown.until(lambda: shown.number("a", "step") > at + 2 and shown.number("c", "step") > at + 2)
    for name in ("a", "c"):
        expect(shown.field(name, "message")).to_be_hidden()
    shown.page.click("#play")
    # It begins anew, alone.
    shown.card("b").locator(".trouble [data-do=restart]").click()
    expect(shown.card("b")).not_to_have_attribute("data-status", "died")
    shown.do("b", "reset")
    shown.expect("b", status="ready", step=0)
    assert shown.number("a", "step") > at


def stopped(shown, suffix=""):
    """Stop a board of which one operator takes five seconds a step; return how long the others took, in s."""
    slow, *fast = (f"{name}{suffix}" for name in ("slow", "fast", "too"))
    shown.add(slow, "baseline", SLOW, policy="noop")
    for name in fast:
        shown.add(name, "baseline", SQUARES, policy="noop")
    shown.reset(0)
    for name in (slow, *fast):
        shown.expect(name, status="ready")
    shown.page.select_option("#speed", "30")
    shown.page.click("#play")
    shown.expect(slow, status="thinking")
    shown.until(lambda: min(shown.number(name, "step") for name in fast) > 5)
    began = time.monotonic()
    shown.page.click("#play")
    expect(shown.page.locator("#phase")).to_have_attribute("data-phase", "stopped")
    for name in fast:
        shown.expect(name, status="ready")
    took_s = time.monotonic() - began
    shown.expect(slow, status="thinking", step=0)
    steps = [shown.number(name, "step") for name in fast]
    # It finishes the step that it was in, and begins no other.
    shown.expect(slow, status="ready", step=1)
    assert [shown.number(name, "step") for name in fast] == steps
    return took_s


def test_stop_does_not_wait_for_one_that_takes_five_seconds(shown, record_property):
    record_property("stop_s", round(stopped(shown), 3))


@pytest.mark.soak
def test_stop_answers_within_half_a_second(shown):
    took_s = []
    for turn in range(5):
        took_s.append(stopped(shown, suffix=f"-{turn}"))
        shown.clear()
    assert sorted(took_s)[2] < 0.5, took_s


def test_what_cannot_be_is_said_in_the_dialog(shown):
    shown.page.click("#add")
    shown.page.select_option("#operator-type", "baseline")
    shown.page.fill("#operator-id", "x")
    shown.page.fill("#env-id", "NoSuchThing-v0")
    shown.page.fill("#policy", "nonsense")
    shown.page.click("#add-submit")
    expect(shown.page.locator("#add-error")).to_contain_text("nonsense")
    shown.page.click("#add-cancel")
    expect(shown.page.locator("#cards > article")).to_have_count(0)
