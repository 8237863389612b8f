"""Several chips of a machine, of which some are in use, broken or of another part."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from tilewise.errors import InUse, Unavailable, UnknownDevice, UsageError
from tilewise.tuner.devices import registry, several
from tilewise.tuner.devices.registry import Family, open_device
from tilewise.tuner.devices.several import open_all, open_free


@pytest.fixture
def chips(bowl, monkeypatch):
    """`chips(*states)` makes this a machine with chips in these states; returns the devices that are opened, by id.

    A state is `free`, `in use`, `broken`, or the name of another part. A chip in use becomes free at the third try.
    """
    opened = {}

    def machine(*states):
        tries = {number: itertools.count(1) for number in range(len(states))}

        def open_chip(argument, wait, l2):
            number = int(argument or 0)
            state = states[number]
            if state == "in use" and next(tries[number]) < 3:
                raise InUse(f"npu:{number} is in use by process 7")
            if state == "broken":
                raise Unavailable(f"npu:{number} does not come up")
            device = bowl.FormulaDevice()
            device.id = f"npu:{number}"
            if state not in ("free", "in use"):
                device.target = dataclasses.replace(device.target, name=state)
            opened[device.id] = device
            return device

        monkeypatch.setattr(registry, "FAMILIES", {"npu": Family(open_chip, list, chips=lambda: len(states))})
        monkeypatch.setattr(registry, "_POLL_SECONDS", 0.0)
        return opened

    return machine


def ids(devices):
    return [device.id for device in devices]


def test_a_kind_is_any_free_chip(chips):
    chips("free", "free")
    assert open_device("npu").id == "npu:0"
    assert open_device("npu:1").id == "npu:1"


def test_a_chip_in_use_or_broken_is_passed_over_and_a_broken_one_is_named(chips, capsys):
    chips("in use", "broken", "free")
    assert open_device("npu").id == "npu:2"
    assert capsys.readouterr().err == "tilewise: npu:1 is left out: npu:1 does not come up\n"


def test_the_first_chip_that_becomes_free_is_waited_for(chips, capsys):
    chips("broken", "in use")
    assert open_device("npu").id == "npu:1"
    assert capsys.readouterr().err.splitlines()[1:] == ["tilewise: npu:1 are all in use; waiting for the first"]


def test_no_longer_than_asked_is_waited_and_the_holder_is_named(chips):
    chips("in use", "in use")
    with pytest.raises(InUse, match="npu:1 is in use by process 7"):
        open_device("npu", wait=0)


def test_where_no_chip_comes_up_the_error_says_why(chips):
    chips("broken", "broken")
    for opening in (open_device, open_free):
        with pytest.raises(Unavailable, match="npu:1 does not come up"):
            opening("npu")


def test_all_free_chips_of_one_part_are_opened_and_the_others_left_out_by_name(chips, capsys):
    opened = chips("free", "in use", "another part", "broken", "free")
    assert ids(open_free("npu")) == ["npu:0", "npu:4"]
    assert opened["npu:2"].closed and not opened["npu:0"].closed
    assert capsys.readouterr().err.splitlines() == [
        "tilewise: npu:1 is in use by process 7",
        "tilewise: npu:3 is left out: npu:3 does not come up",
        "tilewise: npu:2 is left out: it is another part (another part) than npu:0",
    ]


def test_where_all_are_in_use_one_is_waited_for(chips):
    chips("in use", "in use")
    assert ids(open_free("npu")) == ["npu:0"]


def test_one_chip_by_its_number_is_that_one_alone(chips):
    chips("free", "free")
    assert ids(open_free("npu:1")) == ["npu:1"]


def test_devices_that_are_listed_are_all_opened(chips):
    chips("free", "free", "free")
    assert ids(open_all(["npu:2", "npu:0"])) == ["npu:2", "npu:0"]


@pytest.mark.parametrize(
    ("listed", "error", "said"),
    [
        (["npu:0", "npu:0"], UsageError, "npu:0 twice"),
        (["npu"], UsageError, "npu names npu:0, npu:1, npu:2"),
        (["npu:0", "npu:1"], UsageError, r"not comparable: npu:0 \(Bowl\) and npu:1 \(another part\)"),
        (["npu:0", "npu:2"], Unavailable, "npu:2 does not come up"),
        (["npu:0", "tpu"], UnknownDevice, "unknown device 'tpu'"),
    ],
)
def test_a_list_that_cannot_be_opened_as_a_whole_is_refused_and_nothing_stays_open(chips, listed, error, said):
    opened = chips("free", "another part", "broken")
    with pytest.raises(error, match=said):
        open_all(listed)
    assert all(device.closed for device in opened.values())


def test_what_opens_after_an_interruption_is_closed(chips, monkeypatch):
    opened = chips("free", "broken", "free")

    def interrupt(futures):
        raise KeyboardInterrupt

    monkeypatch.setattr(several, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_all(["npu:0", "npu:1", "npu:2"])
    assert sorted(opened) == ["npu:0", "npu:2"] and all(device.closed for device in opened.values())


def test_an_error_of_the_program_is_raised_and_nothing_stays_open(chips, monkeypatch):
    opened, opening = chips("free", "free"), several.open_device

    def open_one(device_id, **options):
        if device_id == "npu:1":
            raise ZeroDivisionError
        return opening(device_id, **options)

    monkeypatch.setattr(several, "open_device", open_one)
    with pytest.raises(ZeroDivisionError):
        open_free("npu")
    assert [device.closed for device in opened.values()] == [True]
