"""Metrics of several processes as one text."""

from prometheus_client.parser import text_string_to_metric_families

from tilewise.api.service.metrics import Metrics, merged


def counted(*statuses):
    metrics = Metrics()
    for status in statuses:
        metrics.count("GET", "/healthz", status, 0.01)
    return metrics.text()


def test_samples_of_several_processes_are_told_apart_by_a_label():
    families = {
        family.name: family
        for family in text_string_to_metric_families(merged({0: counted(200, 200), 1: counted(200), 2: None}).decode())
    }
    requests = {
        sample.labels["process"]: sample.value
        for sample in families["tilewise_requests"].samples
        if sample.name == "tilewise_requests_total"
    }
    assert requests == {"0": 2.0, "1": 1.0}
    up = {sample.labels["process"]: sample.value for sample in families["tilewise_process_up"].samples}
    assert up == {"0": 1.0, "1": 1.0, "2": 0.0}
    assert families["tilewise_request_seconds"].type == "histogram"
