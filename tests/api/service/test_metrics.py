"""Metrics of several processes as one text."""

from prometheus_client.parser import text_string_to_metric_families

from tilewise.api.jobs.overview import Chip, Overview
from tilewise.api.service.metrics import Metrics, merged
from tilewise.api.service.service import Options, Service


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


def samples(text, name):
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    }


def test_seconds_are_counted_up_to_three_bounds_a_decade_from_a_tenth_of_a_millisecond_to_ten_seconds():
    metrics = Metrics()
    metrics.count("GET", "/healthz", 200, 0.0003)
    counts = samples(metrics.text(), "tilewise_request_seconds_bucket")
    bounds = [bound for bound, _ in counts]
    decades = [f"{digits}e{power}" for power in range(-5, 1) for digits in (1, 2.5, 5)]
    assert [float(bound) for bound in bounds] == [*(float(each) for each in [*decades[3:], "1e1", "inf"])]
    assert [*counts.values()] == [0.0] * 2 + [1.0] * 15


def test_the_fleet_is_counted_by_state_and_by_name_and_what_is_gone_is_not():
    metrics = Metrics()
    chips = [Chip("alpha", f"cuda:{number}", "H200", "t", state, None) for number, state in enumerate(("idle", "busy"))]
    metrics.show_fleet(Overview([*chips, chips[0]], {"queued": 3, "done": 0}, {"cuda": 2}), 41)
    text = metrics.text_of_all()
    assert samples(text, "tilewise_devices") == {
        ("H200", "busy"): 1.0,
        ("H200", "idle"): 2.0,
        ("H200", "drained"): 0.0,
        ("H200", "lost"): 0.0,
    }
    assert samples(text, "tilewise_jobs") == {("queued",): 3.0, ("done",): 0.0}
    assert samples(text, "tilewise_jobs_waiting") == {("cuda",): 2.0}
    assert samples(text, "tilewise_last_trial") == {(): 41.0}
    metrics.show_fleet(Overview([], {}, {}), 42)
    text = metrics.text_of_all()
    assert samples(text, "tilewise_devices") == samples(text, "tilewise_jobs_waiting") == {}
    assert samples(text, "tilewise_last_trial") == {(): 42.0}


def test_a_gauge_is_of_one_process_or_of_the_whole_server():
    metrics = Metrics()
    metrics.gauge("of_one", "", lambda: 1.0)
    metrics.gauge("of_all", "", lambda: 2.0, of_all=True)
    assert samples(metrics.text(), "of_one") == {(): 1.0}
    assert samples(metrics.text(), "of_all") == {}
    assert samples(metrics.text_of_all(), "of_all") == {(): 2.0}
    assert samples(metrics.text_of_all(), "of_one") == {}


def test_requests_are_counted_by_method_route_and_status():
    metrics = Metrics()
    for method, status in (("GET", 200), ("GET", 200), ("PUT", 200), ("GET", 404)):
        metrics.count(method, "/x", status, 0.01)
    assert samples(metrics.text(), "tilewise_requests_total") == {
        ("GET", "/x", "200"): 2.0,
        ("PUT", "/x", "200"): 1.0,
        ("GET", "/x", "404"): 1.0,
    }
    assert samples(metrics.text(), "tilewise_request_seconds_count") == {("/x",): 4.0}


def test_what_any_process_knows_of_the_whole_server_is_told_once(tmp_path):
    service = Service(f"sqlite:///{tmp_path}/none.db", Options(run_jobs=False))
    registries = service.metrics._registry, service.metrics._of_all
    own, of_all = ({name for name in one._names_to_collectors if name.startswith("tilewise_")} for one in registries)
    assert of_all == {
        "tilewise_jobs",
        "tilewise_jobs_waiting",
        "tilewise_devices",
        "tilewise_last_trial",
        "tilewise_event_streams",
    }
    assert {"tilewise_answers_kept", "tilewise_answers_bytes", "tilewise_lookups_waiting"} <= own
    assert not own & of_all
