"""The metrics that Prometheus reads at `/metrics`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tilewise.api.jobs.overview import STATES, Overview

__all__ = ["CONTENT_TYPE", "Metrics", "merged"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counts of one process of a server, and the state of the server as a whole, in a registry each."""

    def __init__(self) -> None:
        self._registry, self._of_all = CollectorRegistry(), CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._requests = Counter(
            "tilewise_requests",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "tilewise_request_seconds",
            "Time to the end of the answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.answers = Counter(
            "tilewise_answers", "Look-ups by how they were answered.", ["match", "source"], registry=self._registry
        )
        self.database_errors = Counter(
            "tilewise_database_errors", "Requests that failed because of the database.", registry=self._registry
        )
        self._jobs = Gauge("tilewise_jobs", "Jobs by state.", ["state"], registry=self._of_all)
        self._queue = Gauge(
            "tilewise_jobs_waiting",
            "Waiting jobs by the device that they ask for.",
            ["device"],
            registry=self._of_all,
        )
        self._devices = Gauge(
            "tilewise_devices", "Devices of workers, by name and state.", ["name", "state"], registry=self._of_all
        )
        self._last_trial = Gauge(
            "tilewise_last_trial", "The number of the trial stored last; it grows with each.", registry=self._of_all
        )
        self.fleet_counted = -math.inf
        """The monotonic time at which the fleet was last counted."""
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def gauge(self, name: str, text: str, read: Callable[[], float], *, of_all: bool = False) -> None:
        """Add a gauge that calls `read` at every scrape; `of_all` for what any process knows of the whole server."""
        Gauge(name, text, registry=self._of_all if of_all else self._registry).set_function(read)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        known = self._known.get((method, route, status))
        if known is None:  # finding a child by its labels costs more than counting
            known = self._requests.labels(method, route, str(status)), self._seconds.labels(route)
            self._known[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    def show_fleet(self, fleet: Overview, last_trial: int) -> None:
        """Set what is known of the fleet."""
        self._last_trial.set(last_trial)
        for gauge in (self._jobs, self._queue, self._devices):
            gauge.clear()
        for state, count in fleet.jobs.items():
            self._jobs.labels(state).set(count)
        for device, count in fleet.queue.items():
            self._queue.labels(device).set(count)
        for name in {chip.name for chip in fleet.chips}:
            for state in STATES:
                count = sum((chip.name, chip.state) == (name, state) for chip in fleet.chips)
                self._devices.labels(name, state).set(count)

    def text(self) -> bytes:
        """Return what this process counts, in Prometheus' format."""
        return generate_latest(self._registry)

    def text_of_all(self) -> bytes:
        """Return what is known of the server as a whole."""
        return generate_latest(self._of_all)


def merged(texts: Mapping[int, bytes | None]) -> bytes:
    """Return the metrics of several processes as one text: each sample gets the label `process`, its number in `texts`.

    They are not added up: a process that is started again counts from zero, which Prometheus sees in its own samples
    only. None stands for a process that did not answer.
    """
    registry = CollectorRegistry()
    registry.register(_Merged(texts))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, texts: Mapping[int, bytes | None]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        up = Metric("tilewise_process_up", "1 if this process of the server answers, else 0.", "gauge")
        families = {up.name: up}
        for number, text in self._texts.items():
            process = {"process": str(number)}
            up.add_sample(up.name, process, float(text is not None))
            for found in text_string_to_metric_families((text or b"").decode()):
                known = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                for sample in found.samples:
                    known.add_sample(sample.name, {**sample.labels, **process}, sample.value)
        yield from families.values()
