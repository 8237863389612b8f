"""The verbs of `tilewise bench`: each one's module, function and line of help."""

__all__ = ["VERBS"]

VERBS = {
    "accuracy": (
        "model.commands:accuracy",
        "Compare kernels and torch's own with float64, on the same data.",
    ),
    "artefacts": (
        "fleet.commands:artefacts",
        "Count what hosts compile that share artefacts, with one killed.",
    ),
    "attention": (
        "gpu.commands:attention",
        "Time attention on an NVIDIA GPU against PyTorch's and the memory rate.",
    ),
    "clock": ("model.commands:clock", "Measure the processor time that compiling and timing a config takes."),
    "conform": (
        "service.commands:conform",
        "Send generated requests to a server; compare the answers with its document.",
    ),
    "cube": ("model.commands:cube", "Compare modelled times of matrix products with published ones."),
    "energy": (
        "gpu.commands:energy",
        "Tune for the least energy and for the least time, on an NVIDIA GPU.",
    ),
    "execute": (
        "model.commands:execute",
        "Execute compiled configs; compare with float64 and Triton's interpreter.",
    ),
    "faults": ("gpu.commands:faults", "Tune among configs that crash, hang or are wrong, on an NVIDIA GPU."),
    "fleet": ("fleet.commands:fleet", "Tune on many replayed chips while processes of the fleet are killed."),
    "helion": ("service.commands:helion", "Run Helion's real package with its remote cache on a server."),
    "hostile": ("service.commands:hostile", "Time the service's look-ups beside hostile readers."),
    "inferred": ("search.commands:inferred", "Search with inferred tilings and with those written by hand."),
    "judge": ("search.commands:judge", "Run the default search on landscapes that decided nothing about it."),
    "kernels": ("gpu.commands:kernels", "Tune kernels and compare them with their defaults and the memory rate."),
    "matrix": ("gpu.commands:matrix", "Tune matrix products and compare them with PyTorch's, on an NVIDIA GPU."),
    "memory": ("service.commands:memory", "Read the memory of the service's processes, by their number."),
    "model": ("model.commands:model", "Compare modelled times with published ones of a real Ascend part."),
    "mutants": (
        "model.commands:mutants",
        "Make single mistakes in the kernels' source, and count those that verification refuses.",
    ),
    "mutations": (
        "model.commands:mutations",
        "Change compiled programs at random and count the changes that are detected.",
    ),
    "programs": ("programs.commands:programs", "Tune kernels of other people's libraries, as their users would."),
    "page": ("service.commands:page", "Time the loads of a problem's page with many trials, in a real browser."),
    "raylets": ("fleet.commands:raylets", "Run jobs on one replayed chip of a Ray cluster and on many."),
    "repeatability": (
        "gpu.commands:repeatability",
        "Tune one problem several times on an NVIDIA GPU and compare the winners.",
    ),
    "right": (
        "model.verification.commands:right",
        "Verify the kernels as they are at odd shapes, and count those that are refused.",
    ),
    "runtime": ("launch.commands:runtime", "Time what a look-up adds to a launch with constants."),
    "search": ("search.commands:search", "Replay searches on recorded landscapes: T4 files and Kernel Tuner caches."),
    "serve": ("service.commands:serve", "Time the service's look-ups against a bare Starlette application."),
    "several": ("gpu.commands:several", "Tune on several NVIDIA GPUs of a host at once, beside faults of one."),
    "shapes": ("launch.commands:shapes", "Call kernels at many shapes, of which few are tuned."),
    "soak": ("service.commands:soak", "Load a service with requests while its processes are killed at random."),
    "spread": ("fleet.commands:spread", "Tune on one replayed chip and on many: speed-up, losses and regret."),
    "timing": ("gpu.commands:timing", "Compare ways to time a kernel on an NVIDIA GPU."),
    "verifying": (
        "model.verification.commands:verifying",
        "Tune kernels on a modelled part, and measure verification's share of the time.",
    ),
}
