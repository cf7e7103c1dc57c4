"""What the samples nearest to a sample are called: the probe behind wrong labels and feature skew.

A sample's own label has no say in it, so what the neighbours say is out of fold. Neighbours of all clients count alike.
So one client's skewed labels are no disagreement, and under feature skew a sample's neighbours are those that look like it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DIMENSIONS, NEAREST = 40, 20


@dataclass(frozen=True)
class Neighbours:
    """The nearest other samples of every sample, in the space of the first principal components."""

    points: np.ndarray  # [samples, dimensions]
    nearest: np.ndarray  # [samples, neighbours], the nearest first

    def votes(self, labels: np.ndarray, classes: int, which: slice = slice(None)) -> np.ndarray:
        """[samples, classes]: the share of a sample's neighbours that have a label."""
        called = labels[self.nearest[:, which]]
        places = np.arange(len(labels))[:, None] * classes + called
        counts = np.bincount(places.ravel(), minlength=len(labels) * classes).reshape(len(labels), classes)
        return counts / called.shape[1]


def neighbours(table: np.ndarray) -> Neighbours:
    """The neighbours of every row of a table."""
    from sklearn.decomposition import PCA
    from sklearn.neighbors import NearestNeighbors

    dimensions = min(DIMENSIONS, table.shape[1], len(table) - 1)
    points = PCA(
        dimensions, svd_solver="full" if table.shape[1] <= 100 else "randomized", random_state=0
    ).fit_transform(table)
    count = min(NEAREST, len(table) - 1)
    # Without a query the search leaves every point itself out.
    nearest = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(points).kneighbors(return_distance=False)
    return Neighbours(points, nearest)
