"""Serial numbers of NPUs, from output of npu-smi as public documents show it. It was never run on an NPU here."""

from __future__ import annotations

import pytest

from tilewise.tuner.devices.npu.management import serial

MAPPING = """\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t0                              0                              0                              Ascend 910B3
\t0                              1                              -                              Mcu
\t1                              0                              1                              Ascend 910B3
\t1                              1                              -                              Mcu
"""
"""`npu-smi info -m`, which lists the chips by card; a card has a controller besides."""

TWO_DIES = """\
NPU ID                         Chip ID                        Chip Logic ID                  Chip Phy-ID      Chip Name
0                              0                              0                              0                Ascend910
0                              1                              1                              1                Ascend910
0                              2                              -                              -                Mcu
"""
"""The same where a card has two chips, by a later driver."""

BOARD = """\
        NPU ID                         : 0
        Chip ID                        : 0
        Chip Type                      : Ascend
        Chip Name                      : xxx
        Chip Version                   : V1
        Board ID                       : 0x02
        PCB ID                         : NA
        BOM ID                         : 1
        VDie ID                        : 42C711D4 20B03704 4A10C8D4 14CC040A D2102003
        NDie ID                        : 27216594 20401010 4E10C8D4 14CC040A A4102003
        Chip Position ID               : 0
        PCIe Bus Info                  : 0000:61:00.0
        Firmware Version               : 7.1.0.7.220
"""
"""`npu-smi info -t board -i NPU -c CHIP`, as in Huawei's manual (EDOC1100438695)."""

OLDER_BOARD = """\
NPU ID                         : 1
Chip ID                        : 0
Board ID                       : 0x64
Die ID                         : 409921D4 2140A100 E54BDDD4 07CC040A 9B00301F
Chip Position ID               : 0
"""
"""The same by an older driver, as in EDOC1100368198."""


@pytest.fixture
def npu_smi(tmp_path, monkeypatch):
    """`npu_smi(mapping, board)` puts a program of that name into the path. It notes the words it is called with."""

    def install(mapping, board, code=0):
        for name, text in (("mapping", mapping), ("board", board)):
            (tmp_path / name).write_text(text)
        program = tmp_path / "npu-smi"
        program.write_text(
            f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> asked\ncase "$2" in -m) cat mapping;; *) cat board;; esac\n'
            f"exit {code}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return lambda: (tmp_path / "asked").read_text().splitlines()

    return install


@pytest.mark.parametrize(
    ("mapping", "chip", "place"),
    [(MAPPING, "0", "-i 0 -c 0"), (MAPPING, "1", "-i 1 -c 0"), (TWO_DIES, "1", "-i 0 -c 1")],
)
def test_a_chips_serial_is_that_of_the_die_at_its_place(npu_smi, mapping, chip, place):
    asked = npu_smi(mapping, BOARD)
    assert serial(chip) == "42C711D4-20B03704-4A10C8D4-14CC040A-D2102003"
    assert asked() == ["info -m", f"info -t board {place}"]


def test_an_older_driver_names_the_die_otherwise(npu_smi):
    npu_smi(MAPPING, OLDER_BOARD)
    assert serial("1") == "409921D4-2140A100-E54BDDD4-07CC040A-9B00301F"


@pytest.mark.parametrize(
    ("mapping", "board"),
    [
        (MAPPING.replace("910B3", "").replace("Ascend", "Mcu").replace(" 0  ", " -  "), BOARD),
        ("dcmi model initialized failed\n", BOARD),
        ("", BOARD),
        (MAPPING, BOARD.replace("VDie ID ", "Xxxx ID ")),
        (MAPPING, BOARD.replace("42C711D4 20B03704 4A10C8D4 14CC040A D2102003", "NA")),
    ],
)
def test_a_serial_that_npu_smi_does_not_tell_is_unknown(npu_smi, mapping, board):
    npu_smi(mapping, board)
    assert serial("0") == ""


def test_without_an_npu_smi_that_works_the_serial_is_unknown(npu_smi, monkeypatch):
    npu_smi(MAPPING, BOARD, code=1)
    assert serial("0") == ""
    monkeypatch.setenv("PATH", "")
    assert serial("0") == ""
