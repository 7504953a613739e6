"""Episodes of an experiment as they were recorded: lists, overviews, pages of steps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from recorded import episodes, lines, play, write_experiment

from parllel.distributed.operators.experiments import recorded_episodes
from parllel.distributed.operators.experiments.recorded_episodes import (
    MAX_BYTES,
    MAX_EPISODES,
    MAX_STEPS,
    episode_overview,
    episode_steps,
    episode_video,
    list_episodes,
)

PAIR = {7: [1.0, 2.0, -0.5], 8: [0.0], 9: [1.0] * 5}


def all_steps(base, run, operator, episode):
    """Return all steps of an episode, page after page, and the number of pages."""
    steps, pages, n = [], 0, None
    while n is None or len(steps) < n:
        page = episode_steps(base, run, operator, episode, len(steps))
        steps, pages, n = steps + page["steps"], pages + 1, page["n_steps"]
        assert len(page["steps"]) <= MAX_STEPS
    return steps, pages


def test_steps_are_those_of_the_file(tmp_path):
    folder = write_experiment(tmp_path, {"a": episodes("a", PAIR), "b": episodes("b", PAIR)})
    for name in "ab":
        written = lines(folder, f"told_{name}_steps.jsonl")
        for number, rewards in enumerate(PAIR.values()):
            steps, _ = all_steps(tmp_path, "told", name, number)
            assert steps == [[line] for line in written if line["episode"] == number]
            assert len(steps) == len(rewards)


def test_an_overview_has_the_records_the_curve_and_the_others(tmp_path):
    other = {7: [3.0], 10: [1.0], 9: [2.0, 2.0]}
    folder = write_experiment(
        tmp_path,
        {"a": episodes("a", PAIR), "b": episodes("b", other), "c": episodes("c", {1: [1.0]})},
    )
    found = json.loads(json.dumps(episode_overview(tmp_path, "told", "a", 0)))
    written = lines(folder, "told_a_episodes.jsonl")
    assert found.pop("records") == [written[0]]
    assert found == {
        "run": "told",
        "name": "told",
        "label": "told-v0",
        "operator": "a",
        "episode": 0,
        "state": "failed",
        "seed": 7,
        "n_steps": 3,
        "curves": [{"name": "a", "points": [[0, 1.0], [1, 3.0], [2, 2.5]]}],
        "beside": [{"operator": "b", "episode": 0}],
        "video": False,
        "previous": None,
        "next": 1,
    }
    last = episode_overview(tmp_path, "told", "a", 2)
    assert (last["previous"], last["next"]) == (1, None)
    # The seed counts, not the number.
    assert episode_overview(tmp_path, "told", "a", 1)["beside"] == []
    assert episode_overview(tmp_path, "told", "b", 2)["beside"] == [{"operator": "a", "episode": 2}]


def test_a_game_has_the_records_of_all_players_in_a_step(tmp_path):
    def write(telemetry):
        labels = {"env_id": "told-v0", "episode": 0, "seed": 3}
        for step, (seat, rewards) in enumerate([("x", (0, 0)), ("o", (0, 0)), ("x", (1, -1))], 1):
            telemetry.step(
                {
                    **labels,
                    "operator_id": f"op_{seat}",
                    "player_id": seat,
                    "step": step,
                    "reward": rewards[seat == "o"],
                    "rewards": dict(zip("xo", rewards, strict=True)),
                }
            )
        for seat, total in (("x", 1), ("o", -1)):
            outcome = {"status": "ended", "total_reward": total, "episode_length": 3}
            telemetry.episode({**labels, "operator_id": f"op_{seat}", "player_id": seat, **outcome})
        # The second is played at the same time.
        for step in (1, 2):
            for seat in "xo":
                who = {"operator_id": f"op_{seat}", "player_id": seat}
                telemetry.step({**labels, **who, "episode": 1, "step": step, "reward": step})

    write_experiment(tmp_path, {"game": (write, {"x": "op_x", "o": "op_o"})})
    found = episode_overview(tmp_path, "told", "game", 0)
    assert [record["operator_id"] for record in found["records"]] == ["op_x", "op_o"]
    # The last move cost the other player its point.
    assert [(one["name"], one["points"][-1]) for one in found["curves"]] == [
        ("x", (2, 1.0)),
        ("o", (2, -1.0)),
    ]
    steps, _ = all_steps(tmp_path, "told", "game", 1)
    assert [[record["player_id"] for record in step] for step in steps] == [["x", "o"]] * 2
    listed = list_episodes(tmp_path, "told")["episodes"]
    assert [(one["operator"], one["operator_id"], one["total_reward"]) for one in listed] == [
        ("game", "op_x", 1),
        ("game", "op_o", -1),
        ("game", "op_x", None),
        ("game", "op_o", None),
    ]


def test_a_huge_episode_comes_in_pages_and_its_curve_thinned(tmp_path, monkeypatch):
    n = 3 * MAX_STEPS + 1
    rewards = np.random.default_rng(0).integers(-5, 6, n).astype(float).tolist()
    write_experiment(tmp_path, {"a": episodes("a", {1: [1.0], 2: rewards, 3: [1.0]})})
    steps, pages = all_steps(tmp_path, "told", "a", 1)
    assert [step[0]["reward"] for step in steps] == rewards
    assert pages == 4
    (middle,) = episode_steps(tmp_path, "told", "a", 1, n - 1)["steps"]
    assert middle[0]["step"] == n
    (curve,) = episode_overview(tmp_path, "told", "a", 1)["curves"]
    assert len(curve["points"]) <= 501
    sums = np.cumsum(rewards)
    assert all(total == sums[i] for i, total in curve["points"])
    assert curve["points"][-1] == (n - 1, sums[-1])
    # A page is bounded in bytes too, but has a step at least.
    monkeypatch.setattr(recorded_episodes, "MAX_BYTES", 100)
    assert len(episode_steps(tmp_path, "told", "a", 1, 5)["steps"]) == 1


def test_steps_of_many_bytes_come_in_smaller_pages(tmp_path):
    write_experiment(tmp_path, {"a": episodes("a", {1: [1.0] * 9}, raw="x" * (MAX_BYTES // 4))})
    page = episode_steps(tmp_path, "told", "a", 0)
    assert len(page["steps"]) == 3
    assert len(json.dumps(page)) < 1.1 * MAX_BYTES
    steps, _ = all_steps(tmp_path, "told", "a", 0)
    assert [step[0]["step"] for step in steps] == list(range(1, 10))


def test_of_an_episode_played_twice_the_last_counts(tmp_path):
    def write(telemetry):
        play(telemetry, "a", 0, 5, [1.0], status="failed")
        play(telemetry, "a", 0, 5, [2.0], status="failed")
        play(telemetry, "a", 0, 5, [3.0, 4.0])
        play(telemetry, "a", 1, 6, [9.0], is_noted=False)  # abandoned

    write_experiment(tmp_path, {"a": write})
    steps, _ = all_steps(tmp_path, "told", "a", 0)
    assert [step[0]["reward"] for step in steps] == [3.0, 4.0]
    (record,) = episode_overview(tmp_path, "told", "a", 0)["records"]
    assert (record["status"], record["total_reward"]) == ("ended", 7.0)
    abandoned = episode_overview(tmp_path, "told", "a", 1)
    assert (abandoned["records"], abandoned["n_steps"], abandoned["seed"]) == ([], 1, 6)
    assert abandoned["previous"] == 0
    assert episode_overview(tmp_path, "told", "a", 0)["next"] == 1
    ended, listed = list_episodes(tmp_path, "told")["episodes"]
    assert (ended["status"], listed["status"]) == ("ended", "unfinished")
    assert (listed["episode"], listed["operator_id"], listed["seed"]) == (1, "a", 6)
    assert (listed["episode_length"], listed["total_reward"]) == (1, None)


def test_more_steps_are_found_as_they_are_written(tmp_path):
    folder = write_experiment(tmp_path, {"a": episodes("a", {1: [1.0]})})
    assert episode_overview(tmp_path, "told", "a", 0)["n_steps"] == 1
    path = folder / "telemetry" / "told_a_steps.jsonl"
    with open(path, "a") as file:
        file.write('{"operator_id": "a", "episode": 0, "step": 2, "reward": 5.0}\n{"half')
    found = episode_overview(tmp_path, "told", "a", 0)
    assert found["n_steps"] == 2
    assert found["curves"][0]["points"] == [(0, 1.0), (1, 6.0)]


def test_old_records_show_what_they_have(tmp_path):
    def write(telemetry):
        for reward in (1.0, None, 2.0):
            telemetry.step({"episode": 0, "reward": reward})
        telemetry.step({"reward": 1.0})  # of no episode
        outcome = {"status": "failed", "total_reward": None, "episode_length": 3}
        telemetry.episode({"operator_id": "a", "episode": 0, **outcome})

    write_experiment(tmp_path, {"a": write})
    assert episode_overview(tmp_path, "told", "a", 0)["n_steps"] == 3
    steps, _ = all_steps(tmp_path, "told", "a", 0)
    assert [step[0]["reward"] for step in steps] == [1.0, None, 2.0]
    (listed,) = list_episodes(tmp_path, "told")["episodes"]
    assert (listed["seed"], listed["total_reward"]) == (None, None)


def test_lists_come_in_pages(tmp_path):
    n = MAX_EPISODES // 2 + 1
    rewards = {seed: [] for seed in range(n)}
    write_experiment(tmp_path, {"a": episodes("a", rewards), "b": episodes("b", rewards)})
    first = list_episodes(tmp_path, "told")
    assert (len(first["episodes"]), first["next"]) == (MAX_EPISODES, MAX_EPISODES)
    last = list_episodes(tmp_path, "told", first["next"])
    assert ([one["operator"] for one in last["episodes"]], last["next"]) == (["a", "b"], None)
    assert [one["episode"] for one in last["episodes"]] == [n - 1, n - 1]


@pytest.mark.parametrize(
    ("operator", "episode", "start", "named"),
    [
        ("b", 0, 0, "one of a; got 'b'"),
        ("../told/a", 0, 0, "one of a; got '../told/a'"),
        ("", 0, 0, "one of a; got ''"),
        ("a", 3, 0, "operator 'a' has no recorded steps of episode 3"),
        ("a", 0, 3, "episode 0 of 'a' has 3 steps, got 3"),
    ],
)
def test_what_is_missing_is_named(tmp_path, operator, episode, start, named):
    write_experiment(tmp_path, {"a": episodes("a", PAIR)})
    with pytest.raises(KeyError, match=named):
        episode_steps(tmp_path, "told", operator, episode, start)
    if start == 0:
        with pytest.raises(KeyError, match=named.replace("steps of ", "")):
            episode_overview(tmp_path, "told", operator, episode)


def test_telemetry_elsewhere_is_not_read(tmp_path):
    folder = write_experiment(tmp_path, {"a": episodes("a", PAIR)})
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"episode": 0, "step": 1}\n')
    path = folder / "telemetry" / "told_a_steps.jsonl"
    path.unlink()
    path.symlink_to(secret)
    for read in (episode_overview, episode_steps):
        with pytest.raises(ValueError, match="within the folder of the experiment"):
            read(tmp_path, "told", "a", 0)


def test_a_video_is_that_of_the_environment_and_the_episode(tmp_path, monkeypatch):
    folder = write_experiment(tmp_path, {"a": episodes("a", PAIR)})
    videos = folder / "videos"
    videos.mkdir()
    (videos / "told-v0-episode-1.mp4").write_bytes(b"film")
    (tmp_path / "other.mp4").write_bytes(b"secret")
    (videos / "told-v0-episode-2.mp4").symlink_to(tmp_path / "other.mp4")
    assert episode_video(tmp_path, "told", "a", 1) == b"film"
    assert [episode_overview(tmp_path, "told", "a", i)["video"] for i in range(3)] == [0, 1, 0]
    for number in (0, 2):
        with pytest.raises(KeyError, match=f"operator 'a' has no video of episode {number}"):
            episode_video(tmp_path, "told", "a", number)
    with pytest.raises(KeyError, match="one of a; got 'b'"):
        episode_video(tmp_path, "told", "b", 1)
    monkeypatch.setattr(recorded_episodes, "MAX_VIDEO_BYTES", 3)
    with pytest.raises(ValueError, match="open the file instead"):
        episode_video(tmp_path, "told", "a", 1)


def test_a_damaged_file_is_named(tmp_path):
    folder = write_experiment(tmp_path, {"a": episodes("a", PAIR)})
    path = folder / "telemetry" / "told_a_steps.jsonl"
    path.write_text("{}\nnonsense\n")
    with pytest.raises(ValueError, match=r"told_a_steps.jsonl: line 2: not a record"):
        episode_steps(tmp_path, "told", "a", 0)
