"""Devices that are not here, as far as their specs ask: for look-ups on another machine."""

from __future__ import annotations

from tilewise.kernels.spec import Target
from tilewise.tuner.hardware.ascend_parts import PARTS

__all__ = ["known_target", "memory_gb_s"]

_SHARED_KIB = {
    ("H100", "H200", "H800", "H20", "GH200", "B100", "B200", "GB200", "B300"): 228,
    ("A100", "A800", "A30"): 164,
    ("L4", "L20", "L40", "L40S", "A10", "A40", "RTX"): 100,
    ("V100",): 96,
}
"""Shared memory of a multiprocessor by a word of the name (NVIDIA's tuning guides)."""

_LEAST_SHARED_KIB = 64
"""Of any other GPU: too little refuses a config that would run, too much one that would not."""

_UNIFIED_BUFFER_BYTES = 192 * 1024
"""Of every part of the Ascend 910B and 910_93 families."""


_MEMORY = {("H200", "GH200"): (4800, 50), ("H100", "H800"): (3350, 50), ("A100", "A800"): (2039, 40)}
"""Of some GPUs the memory's rate (GB/s) and the cache's size (MiB), by a word of the name."""

_FASTEST_MEMORY = (8000, 126)
"""Of no GPU more, for those that are not listed."""

_CACHE_FACTOR = 4
"""How much faster than from memory data may come from the cache, where it fits twice over."""


def memory_gb_s(device: str, needed_bytes: int) -> float:
    """More than the device of that name can move, for judging whether a time can be: GB/s."""
    if device in PARTS:
        rate, cache_mib = PARTS[device].hbm_gb_s, PARTS[device].l2_mib
    else:
        words = set(device.replace("-", " ").split())
        rate, cache_mib = next((found for names, found in _MEMORY.items() if words & set(names)), _FASTEST_MEMORY)
    return rate * (_CACHE_FACTOR if needed_bytes <= 2 * cache_mib * 2**20 else 1)


def known_target(device: str, cores: int) -> Target:
    """The device of that name with so many cores."""
    if device.startswith(("NVIDIA ", "AMD ")):
        words = set(device.replace("-", " ").split())
        kib = next((kib for names, kib in _SHARED_KIB.items() if words & set(names)), _LEAST_SHARED_KIB)
        return Target("nvidia", device, cores, kib * 1024, align_bytes=16, max_programs=2**31 - 1)
    return Target("ascend", device, cores, _UNIFIED_BUFFER_BYTES, align_bytes=32, max_programs=65535)
