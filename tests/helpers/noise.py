"""Seeded noise as GPUs make it, for tests of timing. Every kind has a median of 1."""

import gzip
import json

import numpy as np
from places import LANDSCAPES


class Noise:
    """Noise such as `Noise("skewed", seed).times(true_us, count)`. Drift and steps continue from call to call, as on a
    device."""

    def __init__(self, kind, seed, scale=0.01):
        self.kind, self.scale, self.random = kind, scale, np.random.default_rng(seed)
        self.taken, self.step = 0, 1.0

    def times(self, true_us, count):
        return [float(true_us * self._factor()) for _ in range(count)]

    def _factor(self):
        self.taken += 1
        normal = self.random.standard_normal()
        match self.kind:
            case "even":
                return 1 + self.scale * normal
            case "skewed":
                return np.exp(2 * self.scale * (np.exp(normal) - 1))
            case "outliers":
                return (1 + self.scale * normal) * (self.random.uniform(1.2, 3) if self.random.random() < 0.05 else 1)
            case "quantised":
                return round((1 + self.scale * normal) / 0.008) * 0.008
            case "drifting":
                return (1 + self.scale * normal) * (1 + 0.01 * np.sin(self.taken / 300))
            case "stepping":
                if self.random.random() < 0.02:
                    self.step = self.random.choice([0.99, 1.0, 1.02])
                return self.step * (1 + self.scale * normal)
        raise ValueError(self.kind)


INDEPENDENT = ("even", "skewed", "outliers", "quantised")
MOVING = ("drifting", "stepping")


def recorded(name, count, seed=0):
    """Return the recorded repetitions of `count` configs on an H200, in microseconds."""
    with gzip.open(LANDSCAPES / f"{name}-float32-H200.json.gz") as file:
        rows = json.load(file)["results"]
    times = [row["times"]["runtimes"] for row in rows if row["invalidity"] == "correct"]
    chosen = np.random.default_rng(seed).choice(len(times), count, replace=False)
    return [np.array(times[i]) * 1e3 for i in chosen]
