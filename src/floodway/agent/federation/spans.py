"""From when to when a move is owed, from the leases of a fragment alone: both sides read the same and owe the same.

Moves stack up. A fragment that A gave to B and B to C is owed by A to B and by B to C; when it comes back to somebody
on the way, whatever was stacked above is over, and the move that brought it back owes nothing: nobody is paid for what
is at home. An owner that falls silent ends its move, and all those below, at its last sign of life. One that could not
start what it took, and gave it back, is owed nothing.

    A --A/0--> B --B/0--> C          owed: A/0 to B, B/0 to C
    C --C/0--> A, or A takes it back  owed: nothing any more
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from floodway.agent.federation.leases import FragmentLease, LeasePast, MoveDecision, ServiceSpan


def spans(leases: Iterable[FragmentLease]) -> dict[str, ServiceSpan]:
    """The span of every move that a fragment has made, by move; `leases` are all of its leases, oldest first.

    >>> first = FragmentLease("f", 1, "A", since=0.0, until=10.0)
    >>> moved = FragmentLease("f", 2, "B", since=5.0, until=25.0, move="A/0", renewed=15.0)
    >>> spans([first, moved])["A/0"].served
    15.0
    >>> back = FragmentLease("f", 3, "A", since=27.0, until=37.0, idle_since=15.0, idle_until=27.0)
    >>> spans([first, moved, back])["A/0"].outage
    (15.0, 27.0)
    """
    return dict(following(LeasePast(), leases).spans)


def following(past: LeasePast, leases: Iterable[FragmentLease]) -> LeasePast:
    """What the leases of a fragment come to with those that follow, oldest first."""
    epoch, found, chain = past.epoch, dict(past.spans), list(past.chain)
    for lease in leases:
        epoch = lease.epoch
        holders = [holder for holder, _ in chain]
        keep = holders.index(lease.owner) + 1 if lease.owner in holders else 0
        if lease.move is not None and keep == 0:
            chain.append((lease.owner, lease.move))
            found[lease.move] = ServiceSpan(lease.move, lease.since, lease.since)
        else:
            for _, move in chain[keep:]:
                if move is not None:
                    found[move] = _over(found[move], lease)
            chain = chain[:keep] or [(lease.owner, None)]
            if lease.move is not None:
                found[lease.move] = ServiceSpan(lease.move, lease.since, lease.since, end=lease.since, to=lease.owner)
        for _, move in chain:
            if move is not None:  # whoever runs it, all who were paid to have it run have served until now
                found[move] = replace(found[move], served=max(found[move].start, lease.alive))
    return LeasePast(epoch, tuple(chain), found)


def given_back(lease: FragmentLease) -> bool:
    """Whether a lease was made by the owner before, for the giver: neither by a move nor because one had run out."""
    return lease.epoch > 1 and lease.move is None and lease.idle_since is None


def came_to_pass(decision: MoveDecision, leases: Mapping[str, Sequence[FragmentLease]]) -> bool:
    """Whether a move brought its taker a fragment that it did not give back: what both sides find out alone.

    `leases` are those of each fragment from the giver's on. A decision to take may come too late, when the origin has
    claimed the fragment already.
    """
    for line in leases.values():
        following = line[2] if len(line) > 2 else None
        if len(line) > 1 and line[1].move == decision.id and (following is None or not given_back(following)):
            return True
    return False


def _over(span: ServiceSpan, lease: FragmentLease) -> ServiceSpan:
    if given_back(lease):
        return replace(span, served=span.start, end=lease.since, to=lease.owner)
    if lease.idle_since is None:
        return replace(span, served=lease.since, end=lease.since, to=lease.owner)
    served = max(span.start, lease.idle_since)
    outage = None if lease.idle_until is None else (served, max(served, lease.idle_until))
    return replace(span, served=served, end=lease.since, outage=outage, to=lease.owner)
