"""Environments written as small functions, which numba compiles."""

from parllel.envs.compiled.compiled_env import CompiledEnv, compiled_env

__all__ = ["CompiledEnv", "compiled_env"]
