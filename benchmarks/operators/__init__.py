"""Operators beside a loop in the style of MOSAIC and a bare echo: steps, frames, starts, stops."""
