"""Accuracy targets: what can be asked for, and what is refused in plain words."""

from __future__ import annotations

import re

import pytest

from floodway import Accuracy
from floodway.errors import InputError


def test_an_aggregate_is_read() -> None:
    found = Accuracy(" SUM( price * (1 - discount) ) ", by="page", within=0.02, over="1m")
    assert (found.function, found.argument, found.over_seconds) == ("sum", "price * (1 - discount)", 60.0)
    assert (Accuracy("count(*)").argument, Accuracy("mean(x)").function) == ("*", "avg")
    assert Accuracy("count(if(text = ')', 1, null))").argument == "if(text = ')', 1, null)"
    assert (str(found), found.prefer, found.share) == ("SUM( price * (1 - discount) ) by page", "accuracy", 0.8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregate": "max(price)"}, "'max(price)' cannot be estimated with bounds: it is one tuple's value"),
        ({"aggregate": "median(price)"}, "a weighted sum is needed, and a quantile is none"),
        ({"aggregate": "percentile_approx(price, 0.9)"}, "a weighted sum is needed, and a quantile is none"),
        ({"aggregate": "count(DISTINCT user)"}, "a sample does not say how many values it has not seen"),
        ({"aggregate": "approx_count_distinct(user)"}, "a sample does not say how many values it has not seen"),
        ({"aggregate": "my_udaf(price)"}, "my_udaf is none of count, sum and avg"),
        ({"aggregate": "sum(a) / sum(b)"}, "'sum(a) / sum(b)' is no aggregate"),
        ({"aggregate": "price"}, "'price' is no aggregate"),
        ({"aggregate": 7}, "7 is no aggregate"),
        ({"aggregate": "sum()"}, "'sum()' is of no value"),
        ({"aggregate": "avg(*)"}, "'avg(*)' is of no value"),
        ({"within": 0}, "within=0 is no share in (0, 1]"),
        ({"within": float("nan")}, "within=nan is no share in (0, 1]"),
        ({"within": True}, "within=True is no share in (0, 1]"),
        ({"share": 1.5}, "share=1.5 is no share in (0, 1]"),
        ({"by": ""}, "by='' is no column or expression"),
        ({"prefer": "speed"}, "prefer='speed' is not known"),
        ({"over": "1 parsec"}, "over"),
    ],
)
def test_what_cannot_be_had_is_refused(options: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"aggregate": "sum(price)", **options}
    make: type = Accuracy
    with pytest.raises(InputError, match=re.escape(message)):
        make(**given)
