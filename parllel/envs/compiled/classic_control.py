"""Gymnasium's classic control, compiled: equal to gymnasium's environments bit for bit.

The same seeds and actions give the observations, rewards and ends of gymnasium 1.4 with numpy 2.
Expressions are therefore evaluated in gymnasium's order, and in float32 where gymnasium computes in
float32. Options of `reset` are not supported.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.envs.compiled.compiled_env import compiled_env
from parllel.envs.compiled.drawing import Drawing
from parllel.envs.compiled.exact_rounding import (
    cosine_float32,
    sine_float32,
    square,
    square_float32,
)
from parllel.system.compilation import compiled


def _box(*high: float) -> spaces.Box:
    bound = np.array(high, np.float32)
    return spaces.Box(-bound, bound, dtype=np.float32)


_FAILING_ANGLE = 12 * 2 * math.pi / 360


@compiled_env
class CartPole:
    """A pole on a cart: gymnasium's CartPole-v1.

    Parameters: gymnasium's attributes of the same names. As in gymnasium, `total_mass` and
    `polemass_length` are separate from `masspole` and `length`. `sutton_barto_reward` is gymnasium's
    argument; `semi_implicit=True` corresponds to a `kinematics_integrator` other than "euler".
    """

    observation_space = _box(2.4 * 2, np.inf, _FAILING_ANGLE * 2, np.inf)
    action_space = spaces.Discrete(2)
    state = np.dtype([(name, np.float64) for name in ("x", "x_dot", "theta", "theta_dot")])
    parameters = {
        "gravity": 9.8,
        "masspole": 0.1,
        "total_mass": 0.1 + 1.0,
        "length": 0.5,
        "polemass_length": 0.1 * 0.5,
        "force_mag": 10.0,
        "tau": 0.02,
        "theta_threshold_radians": _FAILING_ANGLE,
        "x_threshold": 2.4,
        "semi_implicit": False,
        "sutton_barto_reward": False,
    }
    max_episode_steps = 500
    metadata = {"render_fps": 50}

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        """Draw positions and velocities from [-0.05, 0.05]."""
        state.x = rng.uniform(-0.05, 0.05)
        state.x_dot = rng.uniform(-0.05, 0.05)
        state.theta = rng.uniform(-0.05, 0.05)
        state.theta_dot = rng.uniform(-0.05, 0.05)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> Any:
        """Integrate the equations of Barto, Sutton and Anderson (1983) over `tau` seconds."""
        x, x_dot, theta, theta_dot = state.x, state.x_dot, state.theta, state.theta_dot
        force = state.force_mag if action == 1 else -state.force_mag
        cosine, sine = math.cos(theta), math.sin(theta)
        push = (force + state.polemass_length * (theta_dot * theta_dot) * sine) / state.total_mass
        inertia = 4.0 / 3.0 - state.masspole * (cosine * cosine) / state.total_mass
        theta_acceleration = (state.gravity * sine - cosine * push) / (state.length * inertia)
        x_acceleration = (
            push - state.polemass_length * theta_acceleration * cosine / state.total_mass
        )
        state.x_dot = x_dot + state.tau * x_acceleration
        state.theta_dot = theta_dot + state.tau * theta_acceleration
        if state.semi_implicit:
            x_dot, theta_dot = state.x_dot, state.theta_dot
        state.x = x + state.tau * x_dot
        state.theta = theta + state.tau * theta_dot
        terminated = (
            state.x < -state.x_threshold
            or state.x > state.x_threshold
            or state.theta < -state.theta_threshold_radians
            or state.theta > state.theta_threshold_radians
        )
        if state.sutton_barto_reward:
            return -1.0 if terminated else 0.0, terminated
        return 1.0, terminated

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        """Write position (m), its velocity, angle (rad) and its velocity."""
        out[0] = state.x
        out[1] = state.x_dot
        out[2] = state.theta
        out[3] = state.theta_dot

    @staticmethod
    def render(state: Any) -> NDArray[np.uint8]:
        """Draw cart and pole, [400, 600, 3]."""
        drawing = Drawing(400, 600, (-2.4, 2.4), floor=-1.0)
        drawing.line((-2.4, 0.0), (2.4, 0.0), 0.01, (0, 0, 0))
        x, top = state.x, 2 * state.length
        drawing.line((x - 0.2, 0.0), (x + 0.2, 0.0), 0.12, (60, 60, 60))
        tip = (x + top * math.sin(state.theta), top * math.cos(state.theta))
        drawing.line((x, 0.0), tip, 0.04, (200, 150, 100))
        return drawing.picture


@compiled_env
class Pendulum:
    """A pendulum to swing up and to balance: gymnasium's Pendulum-v1.

    Parameters: gymnasium's attributes of the same names.
    """

    observation_space = _box(1.0, 1.0, 8.0)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    state = np.dtype([("theta", np.float64), ("theta_dot", np.float64)])
    parameters = {"max_speed": 8.0, "max_torque": 2.0, "dt": 0.05, "g": 10.0, "m": 1.0, "l": 1.0}
    max_episode_steps = 200
    metadata = {"render_fps": 30}

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        """Draw the angle from [-pi, pi] and its velocity from [-1, 1]."""
        state.theta = rng.uniform(-np.pi, np.pi)
        state.theta_dot = rng.uniform(-1.0, 1.0)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> Any:
        """Integrate over `dt` seconds. The reward is -(angle^2 + 0.1 velocity^2 + 0.001 torque^2)."""
        theta, theta_dot = state.theta, state.theta_dot
        highest = np.float32(state.max_torque)
        torque = min(max(action[0], -highest), highest)
        angle = ((theta + np.pi) % (2 * np.pi)) - np.pi
        effort = np.float64(np.float32(0.001) * square_float32(torque))
        cost = square(angle) + 0.1 * square(theta_dot) + effort
        pull = np.float64(np.float32(3.0 / (state.m * square(state.l))) * torque)
        speed = theta_dot + (3 * state.g / (2 * state.l) * math.sin(theta) + pull) * state.dt
        speed = min(max(speed, -state.max_speed), state.max_speed)
        state.theta = theta + speed * state.dt
        state.theta_dot = speed
        return -cost, False

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        """Write cosine and sine of the angle, 0 being upright, and its velocity (rad/s)."""
        out[0] = math.cos(state.theta)
        out[1] = math.sin(state.theta)
        out[2] = state.theta_dot

    @staticmethod
    def render(state: Any) -> NDArray[np.uint8]:
        """Draw the pendulum, [500, 500, 3]."""
        drawing = Drawing(500, 500, (-2.2, 2.2), floor=-2.2)
        end = (-math.sin(state.theta), math.cos(state.theta))
        drawing.line((0.0, 0.0), end, 0.1, (204, 77, 77))
        drawing.line((0.0, 0.0), (0.0, 0.0), 0.05, (0, 0, 0))
        return drawing.picture


_HILL_SPACE = spaces.Box(
    np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32), dtype=np.float32
)


def _draw_hill(state: Any) -> NDArray[np.uint8]:
    drawing = Drawing(400, 600, (state.min_position, state.max_position), floor=0.0)

    def point(x: float, above: float = 0.0) -> tuple[float, float]:
        return x, math.sin(3 * x) * 0.45 + 0.55 + above

    for x in np.linspace(state.min_position, state.max_position, 100)[:-1]:
        step = (state.max_position - state.min_position) / 99
        drawing.line(point(x), point(x + step), 0.003, (0, 0, 0))
    flag = state.goal_position
    drawing.line(point(flag), point(flag, 0.15), 0.004, (0, 0, 0))
    drawing.line(point(flag, 0.135), (flag + 0.06, point(flag)[1] + 0.135), 0.015, (204, 204, 0))
    drawing.line(point(state.position, 0.05), point(state.position, 0.05), 0.04, (60, 60, 60))
    return drawing.picture


@compiled_env
class MountainCar:
    """A car in a valley that must gather speed: gymnasium's MountainCar-v0.

    Parameters: gymnasium's attributes of the same names.
    """

    observation_space = _HILL_SPACE
    action_space = spaces.Discrete(3)
    state = np.dtype([("position", np.float64), ("velocity", np.float64)])
    parameters = {
        "min_position": -1.2,
        "max_position": 0.6,
        "max_speed": 0.07,
        "goal_position": 0.5,
        "goal_velocity": 0.0,
        "force": 0.001,
        "gravity": 0.0025,
    }
    max_episode_steps = 200
    metadata = {"render_fps": 30}
    render = staticmethod(_draw_hill)

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        """Draw a position from [-0.6, -0.4], at rest."""
        state.position = rng.uniform(-0.6, -0.4)
        state.velocity = 0.0

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> Any:
        """Push to the left (0), not (1) or to the right (2). The reward is -1."""
        slope = math.cos(3 * state.position) * (-state.gravity)
        velocity = state.velocity + ((action - 1) * state.force + slope)
        velocity = min(max(velocity, -state.max_speed), state.max_speed)
        position = state.position + velocity
        position = min(max(position, state.min_position), state.max_position)
        if position == state.min_position and velocity < 0:
            velocity = 0.0
        state.position, state.velocity = position, velocity
        return -1.0, position >= state.goal_position and velocity >= state.goal_velocity

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        """Write position and velocity."""
        out[0] = state.position
        out[1] = state.velocity


@compiled()
def _add(a: float, b: float, single: bool) -> float:
    """Return a + b, computed in float32 if `single`."""
    return np.float64(np.float32(a) + np.float32(b)) if single else a + b


@compiled()
def _less(a: float, b: float, single: bool) -> bool:
    """Return whether a < b, compared in float32 if `single`."""
    return np.float32(a) < np.float32(b) if single else a < b


@compiled_env
class MountainCarContinuous:
    """A car in a valley whose force is chosen freely: gymnasium's MountainCarContinuous-v0.

    Parameters: gymnasium's attributes of the same names.
    """

    observation_space = _HILL_SPACE
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    state = np.dtype([("position", np.float64), ("velocity", np.float64), ("single", np.bool_)])
    parameters = {
        "min_action": -1.0,
        "max_action": 1.0,
        "min_position": -1.2,
        "max_position": 0.6,
        "max_speed": 0.07,
        "goal_position": 0.45,
        "goal_velocity": 0.0,
        "power": 0.0015,
    }
    max_episode_steps = 999
    metadata = {"render_fps": 30}
    render = staticmethod(_draw_hill)

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        """Draw a position from [-0.6, -0.4], at rest."""
        state.position = rng.uniform(-0.6, -0.4)
        state.velocity = 0.0
        state.single = False

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> Any:
        """Push with a force in [-1, 1]. The reward is -0.1 force^2, and 100 more at the goal."""
        action = np.float64(action[0])
        force, single_force = action, True
        if _less(force, state.min_action, True):
            force, single_force = state.min_action, False
        if _less(state.max_action, force, single_force):
            force, single_force = state.max_action, False

        # Gymnasium's state is float64 until the first step and float32 from then on. Clipping replaces a
        # float32 by a Python float; `single_...` follows which is which, because sums and comparisons
        # depend on it.
        single_position = single_velocity = state.single
        if single_position:
            steepness = math.cos(np.float64(np.float32(3) * np.float32(state.position)))
        else:
            steepness = math.cos(3 * state.position)
        if single_force:
            push = np.float64(np.float32(force) * np.float32(state.power))
        else:
            push = force * state.power
        change = _add(push, -(0.0025 * steepness), single_force)

        velocity = _add(state.velocity, change, single_velocity)
        if _less(state.max_speed, velocity, single_velocity):
            velocity, single_velocity = state.max_speed, False
        if _less(velocity, -state.max_speed, single_velocity):
            velocity, single_velocity = -state.max_speed, False
        position = _add(state.position, velocity, single_position)
        if _less(state.max_position, position, single_position):
            position, single_position = state.max_position, False
        if _less(position, state.min_position, single_position):
            position, single_position = state.min_position, False
        at_wall = not _less(state.min_position, position, single_position)
        if at_wall and velocity < 0:
            velocity, single_velocity = 0.0, False

        terminated = not _less(position, state.goal_position, single_position) and not _less(
            velocity, state.goal_velocity, single_velocity
        )
        state.position, state.velocity = np.float32(position), np.float32(velocity)
        state.single = True
        return (100.0 if terminated else 0.0) - action * action * 0.1, terminated

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        """Write position and velocity."""
        out[0] = state.position
        out[1] = state.velocity


@compiled()
def _accelerations(
    state: Any,
    squares: tuple[float, float, float],
    theta1: float,
    theta2: float,
    dtheta1: float,
    dtheta2: float,
    torque: float,
) -> tuple[float, float]:
    """Return the angular accelerations of both links (Sutton and Barto, 2nd edition, section 11.3).

    squares: of LINK_LENGTH_1, LINK_COM_POS_1 and LINK_COM_POS_2.
    """
    l1_squared, lc1_squared, lc2_squared = squares
    m1, m2, l1 = state.LINK_MASS_1, state.LINK_MASS_2, state.LINK_LENGTH_1
    lc1, lc2, moi, g = state.LINK_COM_POS_1, state.LINK_COM_POS_2, state.LINK_MOI, 9.8
    cos2, sin2 = math.cos(theta2), math.sin(theta2)
    d1 = m1 * lc1_squared + m2 * (l1_squared + lc2_squared + 2 * l1 * lc2 * cos2) + moi + moi
    d2 = m2 * (lc2_squared + l1 * lc2 * cos2) + moi
    phi2 = m2 * lc2 * g * math.cos(theta1 + theta2 - math.pi / 2.0)
    phi1 = (
        -m2 * l1 * lc2 * square(dtheta2) * sin2
        - 2 * m2 * l1 * lc2 * dtheta2 * dtheta1 * sin2
        + (m1 * lc1 + m2 * l1) * g * math.cos(theta1 - math.pi / 2)
        + phi2
    )
    net = torque + d2 / d1 * phi1
    if not state.nips:
        net = net - m2 * l1 * lc2 * square(dtheta1) * sin2
    ddtheta2 = (net - phi2) / (m2 * lc2_squared + moi - square(d2) / d1)
    return -(d2 * ddtheta2 + phi1) / d1, ddtheta2


@compiled()
def _wrapped(angle: float) -> float:
    """Return the angle between -pi and pi."""
    while angle > math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle


@compiled_env
class Acrobot:
    """Two links to swing up by a torque between them: gymnasium's Acrobot-v1.

    Parameters: gymnasium's attributes of the same names. `nips=True` corresponds to
    `book_or_nips = "nips"`.
    """

    observation_space = _box(1.0, 1.0, 1.0, 1.0, 4 * math.pi, 9 * math.pi)
    action_space = spaces.Discrete(3)
    state = np.dtype(
        [(name, np.float64) for name in ("theta1", "theta2", "dtheta1", "dtheta2")]
        + [("single", np.bool_)]
    )
    parameters = {
        "dt": 0.2,
        "LINK_LENGTH_1": 1.0,
        "LINK_MASS_1": 1.0,
        "LINK_MASS_2": 1.0,
        "LINK_COM_POS_1": 0.5,
        "LINK_COM_POS_2": 0.5,
        "LINK_MOI": 1.0,
        "MAX_VEL_1": 4 * math.pi,
        "MAX_VEL_2": 9 * math.pi,
        "torque_noise_max": 0.0,
        "nips": False,
    }
    max_episode_steps = 500
    metadata = {"render_fps": 15}

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        """Draw angles and velocities from [-0.1, 0.1]."""
        state.theta1 = np.float32(rng.uniform(-0.1, 0.1))
        state.theta2 = np.float32(rng.uniform(-0.1, 0.1))
        state.dtheta1 = np.float32(rng.uniform(-0.1, 0.1))
        state.dtheta2 = np.float32(rng.uniform(-0.1, 0.1))
        state.single = True

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> Any:
        """Integrate the equations of Sutton (1996) over `dt` seconds, with a torque of -1, 0 or 1."""
        torque = action - 1.0
        if state.torque_noise_max > 0:
            torque += rng.uniform(-state.torque_noise_max, state.torque_noise_max)
        lengths = state.LINK_LENGTH_1, state.LINK_COM_POS_1, state.LINK_COM_POS_2
        squares = square(lengths[0]), square(lengths[1]), square(lengths[2])
        t1, t2, v1, v2 = state.theta1, state.theta2, state.dtheta1, state.dtheta2
        dt = state.dt
        half = dt / 2.0
        # The Runge-Kutta method of fourth order: v and a are velocities and accelerations at its four points.
        a1, a2 = _accelerations(state, squares, t1, t2, v1, v2, torque)
        v1b, v2b = v1 + half * a1, v2 + half * a2
        t1b, t2b = t1 + half * v1, t2 + half * v2
        a1b, a2b = _accelerations(state, squares, t1b, t2b, v1b, v2b, torque)
        v1c, v2c = v1 + half * a1b, v2 + half * a2b
        t1c, t2c = t1 + half * v1b, t2 + half * v2b
        a1c, a2c = _accelerations(state, squares, t1c, t2c, v1c, v2c, torque)
        v1d, v2d = v1 + dt * a1c, v2 + dt * a2c
        t1d, t2d = t1 + dt * v1c, t2 + dt * v2c
        a1d, a2d = _accelerations(state, squares, t1d, t2d, v1d, v2d, torque)
        sixth = dt / 6.0
        t1 = _wrapped(t1 + sixth * (v1 + 2 * v1b + 2 * v1c + v1d))
        t2 = _wrapped(t2 + sixth * (v2 + 2 * v2b + 2 * v2c + v2d))
        v1 = v1 + sixth * (a1 + 2 * a1b + 2 * a1c + a1d)
        v2 = v2 + sixth * (a2 + 2 * a2b + 2 * a2c + a2d)
        state.theta1, state.theta2 = t1, t2
        state.dtheta1 = min(max(v1, -state.MAX_VEL_1), state.MAX_VEL_1)
        state.dtheta2 = min(max(v2, -state.MAX_VEL_2), state.MAX_VEL_2)
        state.single = False
        terminated = -math.cos(t1) - math.cos(t2 + t1) > 1.0
        return 0.0 if terminated else -1.0, terminated

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        """Write cosine and sine of both angles, and their velocities (rad/s)."""
        if state.single:
            theta1, theta2 = np.float32(state.theta1), np.float32(state.theta2)
            out[0], out[1] = cosine_float32(theta1), sine_float32(theta1)
            out[2], out[3] = cosine_float32(theta2), sine_float32(theta2)
        else:
            out[0], out[1] = math.cos(state.theta1), math.sin(state.theta1)
            out[2], out[3] = math.cos(state.theta2), math.sin(state.theta2)
        out[4] = state.dtheta1
        out[5] = state.dtheta2

    @staticmethod
    def render(state: Any) -> NDArray[np.uint8]:
        """Draw both links, [500, 500, 3]."""
        drawing = Drawing(500, 500, (-2.2, 2.2), floor=-2.2)
        drawing.line((-2.2, 1.0), (2.2, 1.0), 0.01, (0, 0, 0))
        joint = (math.sin(state.theta1), -math.cos(state.theta1))
        angle = state.theta1 + state.theta2
        end = (joint[0] + math.sin(angle), joint[1] - math.cos(angle))
        for a, b in (((0.0, 0.0), joint), (joint, end)):
            drawing.line(a, b, 0.1, (0, 204, 204))
            drawing.line(a, a, 0.1, (204, 204, 0))
        return drawing.picture
