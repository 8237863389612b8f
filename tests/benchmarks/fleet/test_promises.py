"""Each promise of a fleet, once kept and once broken."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tilewise.api.jobs.processes import identity_of, pid_of
from tilewise.benchmarks.fleet import chips as planted
from tilewise.benchmarks.fleet.chips import DTYPE, KERNEL, NAMES, STALE, TOOLCHAIN
from tilewise.benchmarks.fleet.promises import Pause, Seen, check, job_faults
from tilewise.db.activity import last_trial
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.records import Clock, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels import registry
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import enumerate_space

TRIALS = 3
PID = 4711


@pytest.fixture
def stores():
    with open_store("sqlite://") as killed, open_store("sqlite://") as calm:
        yield killed, calm


@pytest.fixture
def made(tmp_path):
    return planted.chips(tmp_path, 2, noise=0.0, seconds=0.0, seed=0)


def scopes():
    spec = registry.load(KERNEL)
    for name, dims in planted.problems(2):
        yield Scope(make_problem(spec, dims, DTYPE), "a1", name, Clock.MEASURED, TOOLCHAIN, 132)


@cache
def fastest(name, m):
    """Return the true times and configs that are the fastest for a problem, among a few."""
    scope = next(one for one in scopes() if (one.device, one.problem.dims["M"]) == (name, m))
    space = enumerate_space(registry.load(KERNEL), scope.problem, known_target(scope.device, scope.cores))
    timed = [(planted.true_us(name, scope.problem, config), dict(config)) for config in space.configs[:20]]
    return sorted(timed, key=lambda each: each[0])[:TRIALS]


def tuned(scope, made):
    """Return a problem's trials, the truly fastest first, as the chip of its kind makes them."""
    [chip] = [one for one in made[:-1] if one.planted.name == scope.device]
    facts = {"chip": chip.id, "process": PID}
    return [
        Trial(config, Status.CORRECT, time_us=true_us, verified=True, ordinal=ordinal, facts=facts)
        for ordinal, (true_us, config) in enumerate(fastest(scope.device, scope.problem.dims["M"]), 1)
    ]


@pytest.fixture
def run(stores, made):
    """Return a function that records both runs, that with kills as `change` has it, and returns what is found."""
    killed, calm = stores
    seen = Seen(Jobs(killed.database), killed.database)

    def go(change=lambda scope, trials: [(scope, trials)], pauses=()):
        for scope in scopes():
            calm.record(scope, tuned(scope, made))
            for where, trials in change(scope, tuned(scope, made)):
                killed.record(where, trials)
        seen.pauses += pauses
        return check(killed, calm, made, seen, trials=TRIALS, problems=2)

    return go


def only_first(change):
    """Apply a change to the problem of the first kind only."""
    return lambda scope, trials: change(scope, trials) if scope.device == NAMES[0] else [(scope, trials)]


def test_a_run_that_keeps_its_promises_has_no_fault(run):
    found = run()
    assert found["faults"] == []
    assert (found["trials"], found["problems_on_several_chips"]) == (2 * TRIALS, 0)
    assert found["loss"] == {"largest": 0.0, "other_winner": 0}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda scope, trials: [(scope, trials[:2])], "trial 3 is missing"),
        (lambda scope, trials: [(scope, [*trials[:2], replace(trials[2], ordinal=2)])], "trial 2 is stored 2 times"),
        (lambda scope, trials: [(scope, [*trials[:2], replace(trials[2], ordinal=4)])], "trial 4 is one too many"),
        (lambda scope, trials: [(scope, [replace(t, facts={"chip": "replay:x"}) for t in trials])], "is of replay:x"),
        (lambda scope, trials: [], "1 problems have trials, and 2 without kills, of 2"),
        (
            lambda scope, trials: [(scope, [replace(trials[0], status=Status.RUNTIME, time_us=None, verified=False)])],
            "the winner's loss is None",
        ),
        (
            lambda scope, trials: [(scope, trials), (replace(scope, toolchain=STALE), trials)],
            "the chip with another toolchain got 1 jobs",
        ),
    ],
)
def test_a_broken_promise_is_a_fault(run, change, fault):
    assert any(fault in told for told in run(only_first(change))["faults"])


def test_a_winner_that_is_truly_slower_is_a_fault(run):
    """Its chip says that it is as fast as the fastest, which it is not."""
    found = run(only_first(lambda scope, trials: [(scope, [replace(t, time_us=9.0 - t.ordinal) for t in trials])]))
    assert found["loss"]["other_winner"] == 1
    assert any("the winner's loss is 0." in told for told in found["faults"]) is (found["loss"]["largest"] > 0.01)
    assert found["loss"]["largest"] > 0


def test_rows_of_an_owner_that_was_stopped_count_from_when_it_went_on(run, stores, made):
    killed, _ = stores
    run(pauses=[Pause(1, PID, 2 * TRIALS, taken=True)])
    scope, _ = scopes()
    assert last_trial(killed.database) == 2 * TRIALS
    again = [replace(trial, samples=20) for trial in tuned(scope, made)]
    killed.record(scope, again)  # as a final comparison by another process does
    assert run()["owners_stopped"]["rows"] == 0
    late = replace(again[0], config={**again[0].config, "num_warps": 32}, ordinal=None, time_us=9e9)
    killed.record(scope, [late])
    found = run()
    assert found["owners_stopped"] == {"all": 1, "taken_over": 1, "rows": 1}
    assert "1 rows were written by owners that had been stopped" in found["faults"]


def test_a_job_that_ends_again_or_badly_is_a_fault(stores):
    database = stores[0].database
    jobs = Jobs(database)
    seen = Seen(jobs, database)
    job, _ = jobs.submit(Request(KERNEL, "a1", [{"M": 8, "N": 9}], DTYPE, NAMES[0]))
    lease = jobs.claim(job, identity_of(PID, "token"), lane="replay:x")
    assert pid_of(jobs.get(job.id).owner) == PID
    seen.look()
    assert (seen.ended, seen.lanes) == (0, {"replay:x"})
    jobs.finish(lease, State.FAILED, "it broke", {})
    seen.look()
    assert (seen.ended, seen.faults) == (1, [])
    assert job_faults(jobs) == [f"job {job.id} is failed: it broke"]
    jobs.retry(job.id)
    seen.look()
    assert len(seen.faults) == 1
    assert f"job {job.id} ended as" in seen.faults[0]


def test_a_trial_that_was_stored_and_is_gone_is_lost(stores, made):
    killed, _ = stores
    scope, _ = scopes()
    killed.record(scope, tuned(scope, made))
    seen = Seen(Jobs(killed.database), killed.database)
    seen.note_trials()
    assert seen.lost_trials() == 0
    with killed.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM trials WHERE ordinal = 2")
    assert seen.lost_trials() == 1
