"""Divide the columns of a cage into groups, and each group among the processes that step it.

    columns      0 1 2 3 | 4 5 6 7          two groups of a cage of eight environments
    stepped by   w w v m | w w v m          w, v: workers; m: the main process, if it takes part

Every process has a share of every group, so that all cores are busy while either group steps. Groups, and the
shares of a group, are contiguous.
"""

from __future__ import annotations


def split_evenly(n: int, parts: int) -> list[int]:
    """Return `parts` sizes that sum to `n`, the larger ones first."""
    return [n // parts + (part < n % parts) for part in range(parts)]


def slices_of(sizes: list[int], start: int = 0) -> list[slice]:
    """Return adjacent slices of these sizes."""
    slices = []
    for size in sizes:
        slices.append(slice(start, start + size))
        start += size
    return slices


def divide(
    n: int, n_workers: int, n_groups: int, n_main: int
) -> tuple[list[slice], list[list[slice]]]:
    """Return the columns of each group, and for each process its columns in each group.

    n: total number of environments.
    n_main: how many of them the main process steps; 0 if it does not take part.

    The main process comes last. A worker may have no environments in one group, but has at least one in all.

    Raises:
        ValueError: if there are too few environments for that many workers or groups.
    """
    # Checked before any process starts: afterwards there would be processes to end again.
    if n_workers < 1:
        raise ValueError(f"n_workers: expected at least 1, got {n_workers}")
    if not 1 <= n_groups <= n:
        raise ValueError(f"n_groups: expected 1 to {n} for {n} environments, got {n_groups}")
    if not 0 <= n_main < n:
        raise ValueError(f"n_main: expected 0 to {n - 1} of {n} environments, got {n_main}")
    if n_workers > n - n_main:
        raise ValueError(
            f"n_workers: expected at most one for each of {n - n_main} environments, got {n_workers}"
        )
    groups = slices_of(split_evenly(n, n_groups))
    sizes = [group.stop - group.start for group in groups]
    # Main's share is fixed first, as its size is asked for; workers divide what is left of each group.
    mains = _spread(n_main, sizes)
    workers = [[0] * n_groups for _ in range(n_workers)]
    for g, size in enumerate(sizes):
        # Workers with fewer environments so far come first, as `split_evenly` gives more to the first ones:
        # so none is left without.
        order = sorted(range(n_workers), key=lambda w: sum(workers[w]))
        for w, share in zip(order, split_evenly(size - mains[g], n_workers), strict=True):
            workers[w][g] = share
    # Contiguous, because a process writes its columns of a row as slices.
    shares = []
    for g, group in enumerate(groups):
        sizes_here = [worker[g] for worker in workers] + [mains[g]]
        shares.append(slices_of(sizes_here, group.start))
    return groups, [list(of_one) for of_one in zip(*shares, strict=True)]


def _spread(n: int, sizes: list[int]) -> list[int]:
    """Return a part of each size, with sum `n`, as equal as possible, the later ones larger."""
    parts = [0] * len(sizes)
    for _ in range(n):
        # To a group with room, the smallest part so far, and the last of those.
        g = max(range(len(sizes)), key=lambda g: (sizes[g] - parts[g] > 0, -parts[g], g))
        parts[g] += 1
    return parts
