"""In which order tests run beside each other: those that mostly wait come first, those that take no time last.

xdist's workers get equal parts of the list, and who has finished takes tests from the end of the longest part. So one
worker waits for hosts and lost processes while the others compute, and nobody has the longest tests left at the end.
"""

import pytest

# Their tests wait for processes: to start, to be missed, to end.
WAITING = ("tests/launch/", "tests/exchange/", "tests/benchmarks/")


def longest_first(items: list[pytest.Item]) -> None:
    """Files stay whole, for what their tests share."""
    with_hosts = {item.path for item in items if item.get_closest_marker("lab")}
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        if item.path in with_hosts:
            return 0
        if item.path in slow:
            return 1 if item.nodeid.startswith(WAITING) else 2
        return 3

    items.sort(key=rank)
