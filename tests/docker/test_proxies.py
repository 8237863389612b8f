"""The examples for operators: proxies with TLS, and rules for alerts, which must name what the server really has."""

from __future__ import annotations

import re

import yaml
from places import ROOT

from tilewise.api.http.body_limit import LARGEST_IMPORT

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


def test_each_alert_is_about_metrics_and_routes_that_the_server_has(client, tune):
    tune()
    client.get("/readyz")
    client.get("/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4")
    shown = client.get("/metrics").text
    for rule in RULES:
        for name in re.findall(r"\b(tilewise_\w+)", rule["expr"]):
            assert re.search(rf"^{name}\b", shown, re.MULTILINE), name
        for route in re.findall(r'route="([^"]+)"', rule["expr"]):
            assert f'route="{route}"' in shown, route
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_compose_limits_memory_and_processes():
    for name, service in COMPOSE["services"].items():
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        assert service["logging"]["options"]["max-size"], name
