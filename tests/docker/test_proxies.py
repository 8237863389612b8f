"""The examples for operators: proxies with TLS, and rules for alerts, which must name what the server really has."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from places import ROOT

from tilewise.api.http.body_limit import LARGEST_IMPORT
from tilewise.api.routes import health
from tilewise.api.service.metrics import merged
from tilewise.db.jobs import Jobs, Request
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane, Workers

PROXY = ROOT / "docker/proxy"
NGINX, CADDY = (PROXY / "nginx.conf").read_text(), (PROXY / "Caddyfile").read_text()
RULES = [rule for group in yaml.safe_load((PROXY / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())


def test_the_proxies_speak_tls_to_others_and_reach_the_server_on_the_loopback():
    assert "listen 443 ssl" in NGINX
    assert set(re.findall(r"proxy_pass (\S+);", NGINX)) == {"http://127.0.0.1:8300"}
    assert re.findall(r"reverse_proxy (\S+)", CADDY) == ["127.0.0.1:8300"]
    for text in (NGINX, CADDY):
        assert "tilewise serve --trusted-proxy 127.0.0.1" in text


def test_nginx_tells_each_clients_own_address():
    places = re.findall(r"proxy_pass", NGINX)
    assert len(re.findall(r"proxy_set_header X-Forwarded-For \$remote_addr;", NGINX)) == len(places) == 3


def test_the_proxies_let_the_largest_import_through():
    assert f"client_max_body_size {LARGEST_IMPORT >> 20}m;" in NGINX
    assert f"max_size {LARGEST_IMPORT >> 20}MB" in CADDY


@pytest.fixture
def shown(client, tune, store_url):
    """The metrics of a server with results, a worker and a job that waits."""
    tune()
    with open_store(store_url) as store:
        lanes = [Lane("cuda:0", "NVIDIA H200", "measured", "cuda 12")]
        Workers(store.database).register("alpha/1/x", "alpha", "0.1.0", lanes, ["row_reduce"])
        Jobs(store.database).submit(Request("row_reduce", "a1", [{"M": 8, "N": 9}], "float32", "NVIDIA H200"))
    client.get("/readyz")
    client.get("/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4")
    several = merged({0: None}).decode()  # of `serve --workers`
    return client.get("/metrics").text + several


def check_expression(expression, shown):
    for name in re.findall(r"\b(tilewise_\w+)", expression):
        assert re.search(rf"^{name}\b", shown, re.MULTILINE), name
    for label, value in re.findall(r'\b(route|state)="([^"]+)"', expression):
        assert f'{label}="{value}"' in shown, value


def test_each_panel_is_about_metrics_that_the_server_has(shown):
    board = json.loads((ROOT / "docker/fleet/board.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for expression in [*expressions, *(one["query"] for one in board["templating"]["list"])]:
        check_expression(expression, shown)
    for metric in ("devices", "jobs", "jobs_waiting", "last_trial", "database_errors_total", "event_streams"):
        assert any(re.search(rf"\btilewise_{metric}\b", expression) for expression in expressions), metric


def test_panels_do_not_overlap():
    places = [panel["gridPos"] for panel in json.loads((ROOT / "docker/fleet/board.json").read_text())["panels"]]
    taken = [(place["y"], x) for place in places for x in range(place["x"], place["x"] + place["w"])]
    assert len(taken) == len(set(taken)) == 24 * len({place["y"] for place in places})


def test_the_metrics_of_the_fleet_tell_what_is_there(shown):
    for line in (
        'tilewise_devices{name="NVIDIA H200",state="idle"} 1.0',
        'tilewise_devices{name="NVIDIA H200",state="busy"} 0.0',
        'tilewise_jobs{state="queued"} 1.0',
        'tilewise_jobs_waiting{device="NVIDIA H200"} 1.0',
        "tilewise_last_trial 3.0",
        "tilewise_event_streams 0.0",
        "tilewise_database_errors_total 0.0",
    ):
        assert line in shown.splitlines()


def test_the_database_is_not_asked_for_metrics_that_were_counted_just_now(shown, client, break_database, monkeypatch):
    monkeypatch.setattr(health, "RECOUNT_SECONDS", 1e9)
    break_database()
    assert "tilewise_database_errors_total 0.0" in client.get("/metrics").text.splitlines()


def test_without_its_database_the_metrics_stay_and_the_error_is_counted(shown, client, break_database, monkeypatch):
    monkeypatch.setattr(health, "RECOUNT_SECONDS", 0)
    break_database()
    after = client.get("/metrics")
    assert after.status_code == 200
    assert 'tilewise_jobs{state="queued"} 1.0' in after.text
    assert "tilewise_database_errors_total 1.0" in after.text.splitlines()
    client.get("/v1/jobs")
    assert "tilewise_database_errors_total 3.0" in client.get("/metrics").text.splitlines()


def test_each_alert_is_about_metrics_and_routes_that_the_server_has(shown):
    for rule in RULES:
        check_expression(rule["expr"], shown)
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_compose_limits_memory_and_processes():
    for name, service in COMPOSE["services"].items():
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        assert service["logging"]["options"]["max-size"], name
