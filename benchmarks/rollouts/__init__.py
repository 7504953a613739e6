"""Fragments of experience as they arrive at a trainer: from threads, from Ray, and from peers on Ray."""
