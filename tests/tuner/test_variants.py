"""On which side of a crossover between variants a shape is."""

from tilewise.db.records import Status, Trial
from tilewise.tuner.variants import crossover, variants


def trial(variant, time_us, *, status=Status.CORRECT, verified=False, **tile):
    return Trial({"VARIANT": variant, **tile}, status, time_us=time_us, verified=verified)


TRIALS = [
    trial("looped", 82.3, TILE=1),
    trial("one_load", 9.0, TILE=1),
    trial("one_load", 7.97, TILE=2, verified=True),
    trial("looped", 95.0, TILE=2),
    trial("one_load", 1.0, status=Status.CORRECTNESS, TILE=4),
    trial("third", None, status=Status.COMPILE),
]


def test_the_best_correct_trial_of_each_variant_is_named_the_fastest_first():
    assert variants(TRIALS) == [
        {
            "variant": "one_load",
            "config": {"VARIANT": "one_load", "TILE": 2},
            "time_us": 7.97,
            "verified": True,
            "ratio": 1.0,
        },
        {
            "variant": "looped",
            "config": {"VARIANT": "looped", "TILE": 1},
            "time_us": 82.3,
            "verified": False,
            "ratio": 10.3262,
        },
    ]
    assert crossover(variants(TRIALS)) == "one_load 7.97 us; looped takes 10.33x"


def test_a_kernel_without_variants_or_with_one_tried_has_no_crossover():
    assert variants([Trial({"TILE": 1}, Status.CORRECT, time_us=1.0)]) == []
    assert crossover(variants(TRIALS[1:3])) == ""
