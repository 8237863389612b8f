"""All parts of the stand-in: Triton's driver, torch's devices, and CANN's packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.tuner.stand_in.cann import cann_stand_in
from tilewise.tuner.stand_in.driver import driver_stand_in, has_driver
from tilewise.tuner.stand_in.torch_devices import torch_stand_in

__all__ = ["accelerator_stand_in"]


@contextmanager
def accelerator_stand_in() -> Iterator[bool]:
    """Stand in for an accelerator while the block runs, if this machine has none; yield whether that was needed."""
    if has_driver():
        yield False
        return
    with torch_stand_in() as device, driver_stand_in(device), cann_stand_in():
        yield True
