"""Who steps which environments of a cage: groups of columns, and in each a share for everyone.

    columns   0 1 2 3 | 4 5 6 7          two groups of a cage of eight environments
    steps     w w v m | w w v m          w, v: workers; m: the main process, if it takes part

Every participant has a share of every group, so that all cores stay busy when groups are stepped in turn.
Shares of a group are contiguous, as are groups.
"""

from __future__ import annotations


def split_evenly(n: int, parts: int) -> list[int]:
    """Return `parts` sizes that sum to `n`, the larger ones first."""
    return [n // parts + (part < n % parts) for part in range(parts)]


def slices_of(sizes: list[int], start: int = 0) -> list[slice]:
    """Return neighbouring slices of these sizes."""
    slices = []
    for size in sizes:
        slices.append(slice(start, start + size))
        start += size
    return slices


def divide(
    n: int, n_workers: int, n_groups: int, n_main: int
) -> tuple[list[slice], list[list[slice]]]:
    """Return the columns of each group, and of each participant in each group; main is the last.

    n: environments in all.  n_main: how many of them the main process steps; 0 if it does not take part.
    A worker may have none in one group, but it has some in all.

    Raises:
        ValueError: if there are too few environments for that many workers or groups.
    """
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
    mains = _spread(n_main, sizes)
    workers = [[0] * n_groups for _ in range(n_workers)]
    for g, size in enumerate(sizes):
        # Who has had fewer so far comes first, so that no worker is left without.
        order = sorted(range(n_workers), key=lambda w: sum(workers[w]))
        for w, share in zip(order, split_evenly(size - mains[g], n_workers), strict=True):
            workers[w][g] = share
    shares = []
    for g, group in enumerate(groups):
        sizes_here = [worker[g] for worker in workers] + [mains[g]]
        shares.append(slices_of(sizes_here, group.start))
    return groups, [list(of_one) for of_one in zip(*shares, strict=True)]


def _spread(n: int, sizes: list[int]) -> list[int]:
    """Return a part of each of `sizes`, `n` together, as even as they allow; the later ones first."""
    parts = [0] * len(sizes)
    for _ in range(n):
        g = max(range(len(sizes)), key=lambda g: (sizes[g] - parts[g] > 0, -parts[g], g))
        parts[g] += 1
    return parts
