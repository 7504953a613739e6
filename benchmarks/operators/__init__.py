"""Operators compared with a MOSAIC-style loop and a bare echo: steps, frames, starts, stops."""
