from __future__ import annotations

from weakref import ref

from parllel.cages.owners import Owners


class Part:
    """Can be referred to weakly."""


class Slotted:
    __slots__ = ()


def test_a_part_has_one_owner_until_it_is_released():
    owners, part, first, second = Owners(), Part(), Part(), Part()
    assert owners.owner_of(part) is None
    owners.claim(part, first)
    assert owners.owner_of(part) is first
    owners.release(second)
    assert owners.owner_of(part) is first
    owners.release(first)
    assert owners.owner_of(part) is None
    owners.claim(part, second)
    assert owners.owner_of(part) is second
    assert owners.owner_of(Part()) is None


def test_an_owner_that_is_garbage_owns_nothing():
    owners, part, slotted, owner = Owners(), Part(), Slotted(), Part()
    owner.itself = owner  # a cycle, which only a collection finds
    for one in (part, slotted):
        owners.claim(one, owner)
    assert owners.owner_of(slotted) is owner
    gone = ref(owner)
    del owner
    assert owners.owner_of(part) is owners.owner_of(slotted) is gone() is None


def test_a_part_in_the_place_of_another_is_another():
    owners, owner, part = Owners(), Part(), Part()
    owners.claim(part, owner)
    place = id(part)
    del part
    kept = []
    for _ in range(10_000):
        kept.append(Part())
        if id(kept[-1]) == place:
            break
    assert owners.owner_of(kept[-1]) is None


def test_what_a_fork_has_copied_is_another_part(monkeypatch):
    owners, part, owner = Owners(), Part(), Part()
    owners.claim(part, owner)
    with monkeypatch.context() as in_child:
        in_child.setattr("os.getpid", lambda: 1)
        assert owners.owner_of(part) is None
    assert owners.owner_of(part) is owner


def test_thousands_of_parts_are_kept_and_those_of_dead_owners_dropped():
    owners, owner = Owners(), Part()
    parts = [Part() for _ in range(1000)]
    for part in parts:
        owners.claim(part, owner)
        owners.claim(Part(), Part())
    assert all(owners.owner_of(part) is owner for part in parts[::100])
    assert len(owners._entries) < 3000
