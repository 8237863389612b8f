"""The verbs of `tilewise bench`: the module and function of each, and its line of help."""

__all__ = ["VERBS"]

VERBS = {
    "accuracy": (
        "model.commands:accuracy",
        "Compare kernels with float64, beside torch's own on the same data.",
    ),
    "execute": (
        "model.commands:execute",
        "Execute compiled configs; compare with float64 and Triton's interpreter.",
    ),
    "faults": ("gpu.commands:faults", "Tune among configs that crash, hang and lie, on an NVIDIA GPU."),
    "kernels": ("gpu.commands:kernels", "Tune kernels and show them beside their defaults and the memory rate."),
    "model": ("model.commands:model", "Compare modelled times with published ones of a real Ascend part."),
    "mutations": (
        "model.commands:mutations",
        "Change compiled programs at random and count what is found.",
    ),
    "repeatability": (
        "gpu.commands:repeatability",
        "Tune one problem several times on an NVIDIA GPU; compare.",
    ),
    "runtime": ("launch.commands:runtime", "Time what a looked-up launch adds to one with constants."),
    "search": ("search.commands:search", "Replay searches on recorded landscapes: T4 files and Kernel Tuner caches."),
    "serve": ("service.commands:serve", "Time the service's look-ups beside a bare Starlette application."),
    "shapes": ("launch.commands:shapes", "Call kernels over many shapes of which few are tuned."),
    "soak": ("service.commands:soak", "Ask a service for everything at once while its processes are killed at random."),
    "timing": ("gpu.commands:timing", "Compare ways to time a kernel on an NVIDIA GPU."),
    "variants": ("model.commands:variants", "Tune both sides of what the seed documents compare."),
    "wall": (
        "gpu.commands:wall",
        "Time tuning from nothing on an NVIDIA GPU, beside triton.autotune.",
    ),
}
