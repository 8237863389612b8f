"""The examples of workers under systemd, Kubernetes and Slurm: they start commands that exist, and may stop slowly."""

from __future__ import annotations

import configparser
import re
import shlex

import pytest
import yaml
from click.testing import CliRunner
from places import ROOT

from tilewise.api.jobs.runner import _DRAIN_SECONDS
from tilewise.cli import cli

FLEET = ROOT / "docker/fleet"
UNIT = (FLEET / "tilewise-worker.service").read_text()
SLURM = (FLEET / "worker.slurm").read_text()
DOCUMENTS = list(yaml.safe_load_all((FLEET / "kubernetes.yaml").read_text()))


def unit():
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str
    read.read_string(UNIT)
    return read


def containers():
    specs = [one["spec"]["template"]["spec"] for one in DOCUMENTS if one["kind"] in ("Deployment", "DaemonSet")]
    return [(spec, container) for spec in specs for container in spec["containers"]]


def commands():
    yield shlex.split(unit()["Service"]["ExecStart"])[1:]
    yield shlex.split(re.search(r"tilewise worker .*", SLURM)[0])[1:]
    for _, container in containers():
        yield [word for word in container["args"] if word != "tilewise"]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_each_example_starts_a_verb_with_options_that_it_has(words):
    verb, *rest = words
    known = CliRunner().invoke(cli, [verb, "--help"]).output
    for option in (word for word in rest if word.startswith("--")):
        assert option in re.split(r"[\s,/]+", known), option


def test_workers_have_time_to_give_their_jobs_back():
    [grace] = [spec["terminationGracePeriodSeconds"] for spec, one in containers() if "worker" in one["args"]]
    stops = int(unit()["Service"]["TimeoutStopSec"]), grace, int(re.search(r"--signal=TERM@(\d+)", SLURM)[1])
    assert min(stops) > _DRAIN_SECONDS
    assert unit()["Service"]["KillMode"] == "mixed"


def test_a_kubernetes_worker_has_eight_npus_and_the_servers_database():
    (_, server), (_, worker) = containers()
    assert worker["resources"]["limits"]["huawei.com/Ascend910"] == 8
    assert server["env"] == worker["env"]
    assert {one["name"] for one in server["env"]} == {"TILEWISE_DB", "PGPASSWORD"}
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
