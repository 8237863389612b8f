"""The course of a seeded search: the same configs in the same order, on any machine and after any change that is not
meant to change it.

A course that changes on purpose is written anew: `python tests/tuner/samplers/test_courses.py`.
"""

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewise.tuner.samplers.base import FAILED, PENALTY, distributions, quiet_study
from tilewise.tuner.samplers.guided import GuidedSampler
from tilewise.tuner.space.search_space import Space

FILE = Path(__file__).parents[2] / "golden" / "courses.json"
DOMAINS = {"A": tuple(range(1, 17)), "B": tuple(2**i for i in range(8)), "F": (True, False)}
WIDE = {**DOMAINS, "C": tuple(range(1, 13)), "D": ("x", "y", "z")}


def space_of(domains):
    return Space(domains, [dict(zip(domains, values, strict=True)) for values in itertools.product(*domains.values())])


def penalties(space):
    """Return log penalties by parameter: 0 at A = 11, B = 32, F, C = 5 and D = y."""
    rows = [
        (
            0.35 * abs(config["A"] - 11) ** 0.7,
            0.5 * abs(math.log2(config["B"]) - 5),
            0.3 * (not config["F"]),
            0.05 * abs(config.get("C", 5) - 5) + 0.2 * (config.get("D", "y") != "y"),
        )
        for config in space.configs
    ]
    return np.array(rows)


def log_time(config, scale):
    """Return a log time that is rugged in A, or None for a corner in which configs fail."""
    if config["A"] * math.log2(config["B"] + 1) > 70:
        return None
    rugged = 0.2 * (48 % config["A"] != 0) + 0.1 * math.sin(3 * config["A"])
    slope = 0.3 * abs(math.log2(config["B"]) - 4) + 0.2 * (not config["F"]) + 0.04 * config.get("C", 5)
    return scale * (rugged + slope + 0.03 * abs(config["A"] - 7))


def course(domains, trials, *, prior=0.0, batch=1, seed=0, scale=1.0, unlikely=False, **options):
    """Return the config indices that are tried, and at last the outlook."""
    space = space_of(domains)
    if prior:
        options["log_penalties"] = prior * penalties(space)
    if unlikely:
        options["likely"] = np.array([config["A"] != 11 for config in space.configs])
    sampler = GuidedSampler(space, seed, **options)
    study, tried = quiet_study(sampler), []
    while len(tried) < trials:
        asked = [study.ask(fixed_distributions=distributions(space)) for _ in range(batch)]
        for trial in asked:
            index = space.index_of([trial.params[name] for name in domains])
            value = log_time(space.configs[index], scale)
            trial.set_user_attr(FAILED, value is None)
            study.tell(trial, PENALTY if value is None else value)
            tried.append(index)
    outlook = sampler.outlook(study)
    told = [float(f"{value:.4g}") for value in (outlook.chance, outlook.gain)]
    return {"tried": tried, "counted": [outlook.trials, outlook.found], "outlook": told}


COURSES = {
    "without a prior": lambda: course(DOMAINS, 28),
    "another seed": lambda: course(DOMAINS, 16, seed=7),
    "a good prior": lambda: course(DOMAINS, 24, prior=1.0),
    "a bad prior in batches": lambda: course(DOMAINS, 24, prior=-0.5, batch=4, unlikely=True),
    "known and elsewhere": lambda: course(DOMAINS, 16, prior=0.5, known=[3, 200, 3], elsewhere=[100, 7, 31]),
    "elsewhere without a prior": lambda: course(DOMAINS, 12, elsewhere=[100, 7, 31]),
    "learnt weights": lambda: course(DOMAINS, 24, prior=1.0, weights=np.array([0.2, 1.5, 1.0, 0.0]), elsewhere=[9]),
    "steep times": lambda: course(DOMAINS, 20, scale=5.0),
    "a large space": lambda: course(WIDE, 16),
    "a large space with a prior": lambda: course(WIDE, 18, prior=1.0, batch=2),
}


@pytest.mark.parametrize("name", COURSES)
def test_a_search_takes_the_course_that_it_took(name):
    made, known = COURSES[name](), json.loads(FILE.read_text())[name]
    assert (made["tried"], made["counted"]) == (known["tried"], known["counted"])
    assert made["outlook"] == pytest.approx(known["outlook"], rel=0.02, abs=0.008)  # two of 256 draws


def test_a_processor_with_narrower_vectors_takes_the_same_course():
    """numpy's partitions and sums differ between processors, among equal values and in the last bit."""
    features = [
        "AVX2",
        "FMA3",
        "AVX512F",
        "AVX512CD",
        *(f"AVX512_{kind}" for kind in ("SKX", "CLX", "CNL", "ICL", "SPR")),
    ]
    name = "a large space with a prior"
    words = [sys.executable, "-c", f"import json, test_courses as t; print(json.dumps(t.COURSES[{name!r}]()))"]
    environment = {
        **os.environ,
        "NPY_DISABLE_CPU_FEATURES": " ".join(features),
        "PYTHONPATH": str(Path(__file__).parent),
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["tried"] == json.loads(FILE.read_text())[name]["tried"]


def write():
    FILE.write_text(json.dumps({name: make() for name, make in COURSES.items()}) + "\n")


if __name__ == "__main__":
    write()
