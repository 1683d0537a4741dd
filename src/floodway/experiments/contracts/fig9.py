"""Figure 9: capacity left over in a network with more load than it can carry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from floodway.experiments.contracts import common
from floodway.experiments.contracts.fig8 import draw
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.simulation.federation_cases import Variant

TITLE = "Capacity left over in an overloaded federation"
CLAIM = Claim(
    common.SOURCE,
    "Figure 9, Table 2",
    "10 contracts: fixed prices use over 95% of the free capacity, a price range over 98%, "
    "with room for at most one more task on any node",
)
FIXED_USED, RANGE_USED = 0.95, 0.98


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """The three numbers of the text; fixed prices leave more than ranges at every number of contracts."""
    found = common.spreads(seeds, progress, overload=True)
    measured: dict[str, Any] = {
        variant.value: {
            "used_10": round(by[10].used, 5),
            "room_before": common.mean(by[10].room_before),
            "room_by_contracts": {str(count): common.mean(one.room_after) for count, one in by.items()},
            "worst_node_10": common.mean(by[10].worst_room),
        }
        for variant, by in found.items()
    }
    fixed, ranged = found[Variant.FIXED], found[Variant.RANGE]
    better = all(sum(ranged[count].room_after) < sum(fixed[count].room_after) for count in common.CONTRACTS)
    measured["range_beats_fixed"] = better
    return Result(
        measured=measured,
        criteria=(
            Criterion(
                f"fixed prices use over {FIXED_USED:.0%} of the free capacity with 10 contracts",
                fixed[10].used > FIXED_USED,
                f"{fixed[10].used:.2%}",
            ),
            Criterion(
                f"a price range uses over {RANGE_USED:.0%} with 10 contracts",
                ranged[10].used > RANGE_USED,
                f"{ranged[10].used:.2%}",
            ),
            Criterion(
                "with a price range no node has room for more than one more task",
                max(ranged[10].worst_room) <= 1,
                str(max(ranged[10].worst_room)),
            ),
            Criterion("a price range leaves less than fixed prices at every number of contracts", better),
        ),
        where="simulation",
        notes=(
            "Random Range: the paper's roomiest node has 2.5 tasks' capacity left, ours "
            f"{measured['Random Range']['worst_node_10']:.1f}: the mean of each run's roomiest node.",
            "With random prices capacity is counted at a node's highest price, so it rises with its contracts "
            "and these variants look worse than they are, as the paper says.",
        ),
        headline=f"10 contracts: Fixed {fixed[10].used:.2%}, Range {ranged[10].used:.2%} used; "
        f"Range: room for at most {max(ranged[10].worst_room)} on any node",
        plots={"contracts-fig9": lambda: draw(found, "room")},
    )
