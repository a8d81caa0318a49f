# SPDX-License-Identifier: GPL-2.0
"""Whether two sets of figures differ: the test of Mann, Whitney and Wilcoxon, which
assumes nothing of how they are distributed."""

import math


def mann_whitney(a, b):
    """(U, p): in how many of all pairs the one of A is above that of B, ties counted
    half; and how likely a U that far from the middle, or farther, is by chance. Exact
    for small sets without ties, else by the normal approximation, corrected for ties
    and continuity.

    >>> mann_whitney([1, 2, 3], [4, 5, 6])  # 2 of the 20 ways to choose 3 of 6
    (0.0, 0.1)
    >>> u, p = mann_whitney([19, 22, 16, 29, 24], [20, 11, 17, 12])
    >>> u, round(p, 5)  # 14 of the 126 ways
    (17.0, 0.11111)
    >>> mann_whitney([1, 2] * 50, [1, 2] * 50)
    (5000.0, 1.0)
    """
    n, m = len(a), len(b)
    if not n or not m:
        raise ValueError("nothing to compare")
    values = sorted([(x, 0) for x in a] + [(x, 1) for x in b])
    ranks, ties, i = 0.0, 0, 0
    while i < n + m:
        j = i
        while j < n + m and values[j][0] == values[i][0]:
            j += 1
        ranks += sum(1 for k in range(i, j) if values[k][1] == 0) * (i + 1 + j) / 2
        ties += (j - i) ** 3 - (j - i)
        i = j
    u = ranks - n * (n + 1) / 2
    if not ties and n * m <= 400:
        return u, _exact(n, m, min(u, n * m - u))
    spread = math.sqrt(n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)))) if n + m > 1 else 0
    if not spread:
        return u, 1.0
    z = max(abs(u - n * m / 2) - 0.5, 0) / spread
    return u, math.erfc(z / math.sqrt(2))


def _exact(n, m, u):
    """How likely U is at most u, or as far on the other side."""
    # ways[k][s]: to choose k of the ranks so far with a U of s
    ways = [[1] + [0] * (n * m)] + [[0] * (n * m + 1) for _ in range(n)]
    for rank in range(n + m):
        for k in range(min(n, rank + 1), 0, -1):
            # one that is the k-th chosen has rank - k + 1 of the others below it
            below = rank - k + 1
            for s in range(n * m, below - 1, -1):
                ways[k][s] += ways[k - 1][s - below]
    return min(1.0, 2 * sum(ways[n][:int(u) + 1]) / math.comb(n + m, n))
