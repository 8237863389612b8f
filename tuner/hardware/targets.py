"""Targets of devices on other machines, with the properties that specs use: for look-ups without the device."""

from __future__ import annotations

from tilewise.kernels.spec import Target
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES, PARTS

__all__ = ["known_target", "memory_gb_s", "memory_share"]

_SHARED_KIB = {
    ("H100", "H200", "H800", "H20", "GH200", "B100", "B200", "GB200", "B300"): 228,
    ("A100", "A800", "A30"): 164,
    ("L4", "L20", "L40", "L40S", "A10", "A40", "RTX"): 100,
    ("V100",): 96,
}
"""Shared memory of a multiprocessor, in KiB, by a word of the device's name (NVIDIA's tuning guides)."""

_CAPABILITY = {
    ("B300", "GB300"): 103,
    ("B100", "B200", "GB200"): 100,
    ("H100", "H200", "H800", "H20", "GH200"): 90,
    ("L4", "L20", "L40", "L40S"): 89,
    ("A10", "A40"): 86,
    ("A100", "A800", "A30"): 80,
    ("V100",): 70,
}
"""Compute capability times ten, by a word of the device's name (NVIDIA's list of GPUs with CUDA)."""

_LEAST_SHARED_KIB = 64
"""Shared memory assumed for other GPUs: too little refuses configs that would run, too much admits some that fail."""

_MEMORY = {("H200", "GH200"): (4800, 50), ("H100", "H800"): (3350, 50), ("A100", "A800"): (2039, 40)}
"""Memory rate (GB/s) and cache size (MiB) of some GPUs, by a word of the name."""

_FASTEST_MEMORY = (8000, 126)
"""Upper bounds for GPUs that are not listed: no GPU has more."""

_CACHE_FACTOR = 4
"""Factor by which the cache may be faster than memory, for data of up to twice the cache's size."""


def memory_gb_s(device: str, needed_bytes: int) -> float:
    """Return an upper bound in GB/s on the named device's memory rate, for judging whether a time is possible."""
    if device in PARTS:
        rate, cache_mib = PARTS[device].hbm_gb_s, PARTS[device].l2_mib
    else:
        words = set(device.replace("-", " ").split())
        rate, cache_mib = next((found for names, found in _MEMORY.items() if words & set(names)), _FASTEST_MEMORY)
    return rate * (_CACHE_FACTOR if needed_bytes <= 2 * cache_mib * 2**20 else 1)


def sheet_gb_s(device: str) -> float | None:
    """Return the memory rate on the data sheet of a GPU that is not from Ascend; None if it is not listed."""
    words = set(device.replace("-", " ").split())
    found = next((found for names, found in _MEMORY.items() if words & set(names)), None)
    return None if device in PARTS or found is None else found[0]


def memory_share(target: Target) -> float:
    """Return how much of its part's memory rate a core of this target has, beside a multiprocessor of an H200.

    By the rates of the data sheets; 1 for a GPU that is not listed.
    """
    rate = sheet_gb_s(target.name)
    return 1.0 if rate is None else (rate / target.cores) / (4800 / 132)


def known_target(device: str, cores: int) -> Target:
    """Return the target of the named device with this number of cores."""
    if device.startswith(("NVIDIA ", "AMD ")):
        words = set(device.replace("-", " ").split())
        kib = next((kib for names, kib in _SHARED_KIB.items() if words & set(names)), _LEAST_SHARED_KIB)
        capability = next((number for names, number in _CAPABILITY.items() if words & set(names)), 0)
        return Target(
            "nvidia", device, cores, kib * 1024, align_bytes=16, max_programs=2**31 - 1, capability=capability
        )
    return Target("ascend", device, cores, ON_CHIP_BYTES["ub"], align_bytes=32, max_programs=65535)
