"""Look-ups that take long: in processes of their own, once each, few at once, and for clients that wait for them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from tilewise.api.routes import lookups
from tilewise.api.service import slow_lookups
from tilewise.api.service.places import Places
from tilewise.errors import Busy, StoreError
from tilewise.tuner.lookup.resolve import NotTuned
from tilewise.tuner.workers.worker import WorkerDied, WorkerFailed

FAR = "/v1/configs/row_reduce?M=7&N=64&device=Ascend910B4&match=predicted"


class Calls:
    """Stands in for the pools of both lanes: calls stay under way until a test ends them."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Future]] = []

    def submit(self, url, own, task, *arguments, timeout):
        future: Future = Future()
        self.made.append((task, future))
        if task == "one":
            future.set_result(None)
        return future

    def count(self):
        return Counter(task for task, future in self.made if not future.cancelled())


@pytest.fixture
def calls(client, monkeypatch):
    monkeypatch.setattr(slow_lookups, "_REFUSAL_SECONDS", 0.0)
    calls, lookups = Calls(), client.app.state.service.slow_lookups
    for lane in (lookups._quick, lookups._slow):
        monkeypatch.setattr(lane, "_pool", calls)
    return calls


async def connect(client, path):
    """Begin a request and return its task, and an event that makes the client leave."""
    left, statuses = asyncio.Event(), []
    raw, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": raw, "raw_path": raw.encode(), "query_string": query.encode()}
    scope |= {"headers": [], "client": ("192.0.2.1", 1), "server": ("tiles", 80), "scheme": "http"}

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        statuses.append(message.get("status"))

    task = asyncio.create_task(client.app(scope, receive, send))
    await asyncio.sleep(0.05)
    return task, left, statuses


async def predicted_call(calls):
    """Return the future of the call that predicts, once it was made."""
    for _ in range(200):
        if found := [future for task, future in calls.made if task == "one_by_any_means"]:
            return found[-1]
        await asyncio.sleep(0.05)
    raise AssertionError(f"no call for a prediction among {calls.count()}")


def test_the_same_question_of_many_clients_is_one_call(client, calls):
    async def ask():
        asked = [await connect(client, FAR) for _ in range(3)]
        await predicted_call(calls)
        assert calls.count() == {"one": 1, "one_by_any_means": 1}
        calls.made[-1][1].set_result(("predicted", b"{}"))
        await asyncio.gather(*(task for task, _, _ in asked))
        again = await connect(client, FAR)
        await again[0]
        return [statuses[0] for _, _, statuses in (*asked, again)]

    assert client.portal.call(ask) == [200] * 4
    assert calls.count() == {"one": 1, "one_by_any_means": 1}


def test_so_many_answers_are_kept_and_the_oldest_dropped(client, calls, monkeypatch):
    monkeypatch.setattr(slow_lookups, "_MOST_KEPT", 2)
    targets = [FAR.replace("M=7", f"M={m}") for m in (1, 2, 3)]

    async def ask(target):
        task, _, statuses = await connect(client, target)
        while not task.done():  # on a busy machine the call is made later
            for name, future in calls.made:
                if name == "one_by_any_means" and not future.done():
                    future.set_result(("predicted", b"{}"))
            await asyncio.sleep(0.001)
        return statuses[0]

    for target in (*targets, targets[2], targets[1]):
        assert client.portal.call(ask, target) == 200
    assert calls.count()["one_by_any_means"] == 3
    assert client.portal.call(ask, targets[0]) == 200
    assert calls.count()["one_by_any_means"] == 4


def test_a_call_whose_clients_have_all_left_is_given_up(client, calls):
    async def ask():
        first, second = await connect(client, FAR), await connect(client, FAR)
        first[1].set()
        await first[0]
        assert calls.count()["one_by_any_means"] == 1
        second[1].set()
        await second[0]
        await asyncio.sleep(0.01)
        return first[2] + second[2]

    assert client.portal.call(ask) == []
    assert calls.count()["one_by_any_means"] == 0
    assert client.app.state.service.slow_lookups.waiting == 0


def test_a_caller_with_too_many_questions_is_told_when_to_come_again(client, calls, problem_of):
    async def fill():
        return [await connect(client, FAR.replace("M=7", f"M={m}")) for m in range(100, 117)]

    asked = client.portal.call(fill)
    assert [statuses[:1] for _, _, statuses in asked] == [[]] * 16 + [[429]]

    async def leave():
        for _, left, _ in asked:
            left.set()
        await asyncio.gather(*(task for task, _, _ in asked))

    client.portal.call(leave)
    assert client.portal.call(connect, client, FAR)[2] == []  # there is room again


def test_a_batch_has_few_predictions_and_marks_the_others_as_busy(client, tune, monkeypatch):
    tune()
    query = {"kernel": "vector_add", "device": "Ascend910B4", "match": "predicted"}
    monkeypatch.setattr(lookups, "_MOST_BEYOND", 2)
    queries = [query | {"dims": {"N": n}} for n in range(1, 5)]
    results = client.post("/v1/lookup", json={"queries": queries}).json()["results"]
    assert [result["dims"]["N"] for result in results] == [1, 2, 3, 4]
    assert [result["match"] for result in results if result["config"]] == ["predicted"] * 2
    assert [result.get("type") for result in results[2:]] == ["urn:tilewise:problem:busy"] * 2
    again = client.post("/v1/lookup", json={"queries": queries[2:]}).json()["results"]
    assert all(result["config"] for result in again)


@pytest.mark.parametrize(
    ("error", "kind", "heeded"),
    [
        (NotTuned("it is not tuned"), "not-tuned", [{"N": 1}, {"N": 2}]),
        (Busy("many look-ups are under way", 1.0), "busy", []),
    ],
)
def test_misses_of_a_batch_beyond_the_nearest_shape_are_heeded_unless_the_server_was_busy(
    client, monkeypatch, error, kind, heeded
):
    async def fail(caller, request):
        raise error

    questions = []
    monkeypatch.setattr(lookups, "_heed_miss", lambda service, question: questions.append(dict(question.dims)))
    monkeypatch.setattr(client.app.state.service.slow_lookups, "one", fail)
    query = {"kernel": "vector_add", "device": "unheard of", "match": "predicted"}
    body = {"queries": [query | {"dims": {"N": n}} for n in (1, 2)]}
    results = client.post("/v1/lookup", json=body).json()["results"]
    assert [result["type"] for result in results] == [f"urn:tilewise:problem:{kind}"] * 2
    assert questions == heeded


def test_the_server_itself_predicts_nothing(client, tune, monkeypatch):
    tune()
    monkeypatch.setattr("tilewise.tuner.prior.penalties.rank_by_prior", None)
    response = client.get("/v1/configs/vector_add?N=1000&device=Ascend910B4&match=predicted")
    assert response.json()["match"] == "predicted"


@pytest.mark.parametrize(
    ("error", "status"),
    [(WorkerFailed("KeyError", "inside"), 500), (WorkerDied("inside"), 503), (StoreError("inside"), 503)],
)
def test_a_process_that_fails_is_logged_and_not_quoted(client, calls, error, status, caplog):
    async def ask():
        task, _, statuses = await connect(client, FAR)
        future = await predicted_call(calls)
        if isinstance(error, StoreError):
            future.set_result(error)
        else:
            future.set_exception(error)
        await task
        return statuses[0]

    with caplog.at_level(logging.ERROR):
        assert client.portal.call(ask) == status
    assert "inside" in caplog.text


def test_places_are_limited_in_all_and_for_each_caller():
    places = Places(3, 2, "requests", 5.0)
    with places.one("a"), places.one("a"):
        with pytest.raises(Busy, match="2 requests of yours are under way; wait for one"), places.one("a"):
            pass
        with places.one("b"), pytest.raises(Busy, match="3 requests are under way") as refused, places.one("c"):
            pass
        assert refused.value.retry_seconds == 5.0
    assert len(places) == 0
    with places.one("a"):
        pass


@pytest.mark.parametrize(
    ("cores", "processes", "quick", "slow"),
    [
        (1, 1, (1, 256), (1, 32)),
        (7, 1, (1, 256), (1, 32)),
        (8, 1, (2, 256), (2, 32)),
        (64, 1, (2, 256), (4, 32)),
        (64, 2, (1, 128), (2, 16)),
        (64, 32, (1, 8), (1, 1)),
    ],
)
def test_the_processes_of_a_server_divide_places_and_processes(cores, processes, quick, slow, monkeypatch):
    made = []
    monkeypatch.setattr(slow_lookups.os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(slow_lookups, "_Lane", lambda supervisor, size, places, what: made.append((size, places)))
    slow_lookups.SlowLookups("sqlite://", None, None, processes)
    assert made == [quick, slow]


@pytest.mark.parametrize(("places", "all_of_them", "of_one"), [(256, 256, 128), (5, 5, 2), (1, 2, 1)])
def test_half_of_a_lanes_places_may_be_one_callers(places, all_of_them, of_one, monkeypatch):
    made = []
    monkeypatch.setattr(slow_lookups, "WorkerPool", lambda supervisor, size: None)
    monkeypatch.setattr(slow_lookups, "Places", lambda *given: made.append(given))
    slow_lookups._Lane(None, 1, places, "predictions")
    assert made == [(all_of_them, of_one, "predictions", 1.0)]


def test_closing_ends_the_processes_of_both_lanes(monkeypatch):
    ended = []
    pool = SimpleNamespace(close=lambda: ended.append("ended"))
    monkeypatch.setattr(slow_lookups, "WorkerPool", lambda supervisor, size: pool)
    slow_lookups.SlowLookups("sqlite://", None, None, 1).close()
    assert ended == ["ended"] * 2
