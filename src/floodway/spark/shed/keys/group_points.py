"""A sampled tuple as one whole number of 53 bits, which survives doubles and JSON. No Spark in here.

29 bits are of the group's hash; then comes the value, to a relative error of 0.01%:

     1 bit    1 for x < 0
    23 bits   8192 (log2 |x| + 512), 0 for x = 0
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from floodway.planning.estimates.group_sample import Points, Sizes

GROUP_BITS = 29
STEPS, LEAST_LOG = 8192, 512
MAGNITUDES = 1 << 23
VALUES = 2 * MAGNITUDES


def points_of(sample: Sequence[int], sampled: int, sizes: Sequence[float]) -> Points:
    """The points that a batch delivered, which was sampled by these sizes.

    >>> points_of([7 * 2**24 + 8192 * 513], 1, ()).values.round(3)
    array([2.])
    """
    packed = np.asarray(sample, dtype=np.int64)
    code = packed % VALUES
    magnitude = code % MAGNITUDES
    value = np.where(magnitude == 0, 0.0, np.exp2((magnitude + 0.5) / STEPS - LEAST_LOG))
    known = Sizes(*sizes) if sizes else None
    return Points(packed // VALUES, np.where(code >= MAGNITUDES, -value, value), sampled, known)
