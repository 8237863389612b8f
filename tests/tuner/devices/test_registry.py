"""Devices by id."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.db.records import Clock, L2State
from tilewise.errors import InUse, UnknownDevice, UsageError
from tilewise.tuner.devices import registry
from tilewise.tuner.devices.base import DeviceRow
from tilewise.tuner.devices.registry import FAMILIES, Family, choose, open_device


@pytest.mark.parametrize(
    "device", ["npu", "cuda", "npu:0", "cuda:15", "model:Ascend910B1", "replay:some.json", "replay:a:b.json"]
)
def test_an_id_means_itself(device):
    assert choose(device) == device


@pytest.mark.parametrize(
    "device",
    ["", "gpu", "model", "model:", "replay:", "npu:", "cuda:-1", "cuda:01", "npu:100", "cuda:x", "cuda:1,2", "auto:1"],
)
def test_any_other_id_is_refused_with_the_ids_that_exist(device):
    with pytest.raises(UnknownDevice, match=r"expected auto, npu, cuda, model:PART or replay:FILE, such as model:"):
        choose(device)


@pytest.mark.parametrize(
    ("device", "module", "name", "index"),
    [
        ("cuda", "cuda", "CudaDevice", 0),
        ("cuda:0", "cuda", "CudaDevice", 0),
        ("cuda:7", "cuda", "CudaDevice", 7),
        ("npu", "npu", "NpuDevice", 0),
        ("npu:12", "npu", "NpuDevice", 12),
    ],
)
def test_a_number_opens_that_chip(monkeypatch, device, module, name, index):
    opened = []
    monkeypatch.setattr(f"tilewise.tuner.devices.{module}.device.{name}", lambda *given, **how: opened.append(given))
    open_device(device)
    assert opened == [(index,)]


def test_a_part_that_is_not_modelled_is_refused_with_those_that_are():
    with pytest.raises(UnknownDevice, match="unknown Ascend part 'Ascend1'; modelled: Ascend910B1,"):
        choose("model:Ascend1")


@pytest.mark.parametrize(("here", "chosen"), [("cuda", "cuda"), ("npu", "npu"), ("", "model:Ascend910B4")])
def test_auto_is_the_first_chip_that_is_here_or_else_a_modelled_one(monkeypatch, here, chosen):
    def row(name):
        return DeviceRow(name, name, Clock.MEASURED, None, available=name == here, unavailable_reason="absent")

    families = {name: Family(FAMILIES[name].open, lambda name=name: [row(name)]) for name in ("npu", "cuda")}
    monkeypatch.setattr(registry, "FAMILIES", families)
    assert choose("auto") == chosen


@pytest.mark.parametrize(
    ("device", "l2", "able"),
    [("replay:some.json", "warm", "npu and cuda and model"), ("cuda", "dirty", "model"), ("npu", "dirty", "model")],
)
def test_a_state_of_the_cache_is_refused_where_runs_cannot_start_with_it(device, l2, able):
    message = f"device {device} cannot start each run with a {l2} L2 cache; only {able} can"
    with pytest.raises(UsageError, match=message):
        open_device(device, l2=L2State(l2))


@pytest.mark.parametrize("name", ["910B4", "Ascend910B4", "910_9363", "Ascend910_9363"])
def test_a_part_has_the_names_that_users_type(name):
    assert choose(f"model:{name}") == ("model:Ascend910B4" if "B4" in name else "model:Ascend910_9362")


@pytest.mark.parametrize(
    ("name", "advice"), [("Ascend910C", "two dies"), ("910C", "two dies"), ("Ascend910B", "family")]
)
def test_a_name_that_stands_for_several_parts_is_answered_with_what_to_use(name, advice):
    with pytest.raises(UnknownDevice, match=f"{name} is not one part: .*{advice}"):
        choose(f"model:{name}")


@pytest.mark.parametrize(("wait", "looks"), [(0, [0.0]), (1, [0.0, 0.5, 1.0]), (1.2, [0.0, 0.5, 1.0, 1.5])])
def test_chips_in_use_are_tried_twice_a_second_until_the_wait_is_over(monkeypatch, capsys, wait, looks):
    clock, tried = SimpleNamespace(now=0.0), []

    def open_chip(argument, wait, l2):
        assert clock.now < 10 and len(tried) < 20, "never gives up"
        tried.append((argument, wait, clock.now))
        raise InUse(f"npu:{argument} is in use")

    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    monkeypatch.setattr(registry, "FAMILIES", {"npu": Family(open_chip, list, chips=lambda: 2)})
    with pytest.raises(InUse, match="npu:1 is in use"):
        open_device("npu", wait=wait)
    assert tried == [(number, 0, at) for at in looks for number in ("0", "1")]
    assert capsys.readouterr().err.count("are all in use; waiting for the first") == (len(looks) > 1)
