"""How DDP groups gradients into buckets, each of which is exchanged at once. Without torch, for `phalanx plan`."""

from collections.abc import Sequence

BUCKET_MIB = 25  # the bound of a bucket
FIRST_BUCKET_BYTES = 1 << 20  # torch's own: the first bucket is small, so that the exchange begins early


def fill_buckets(sizes: Sequence[int]) -> list[list[int]]:
    """Places of gradients by bucket. `sizes` are their bytes, in the order in which backward makes them.

    DDP fills its buckets by that order after the first step. A bucket is full when it reaches the bound, so it may
    pass it by one gradient.
    """
    buckets: list[list[int]] = [[]]
    room = FIRST_BUCKET_BYTES
    for place, size in enumerate(sizes):
        if room <= 0:
            buckets.append([])
            room = BUCKET_MIB << 20
        buckets[-1].append(place)
        room -= size
    return [bucket for bucket in buckets if bucket]
