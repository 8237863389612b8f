"""The choice of a config for a shape, with its reason: the slow half of `tuned`, run once per shape and process."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tilewise.db.records import Config, Question, Result, Shape
from tilewise.db.store import Store
from tilewise.errors import BadSpec, TilewiseError
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec, Problem, Target
from tilewise.settings import read_settings
from tilewise.tuner.devices.registry import is_device_name
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.lookup.open_source import Nothing, Opened, forget_opened, is_server, open_source
from tilewise.tuner.lookup.resolve import Match, device_name, match_of, resolve_with_fallback
from tilewise.tuner.runtime.current_device import CurrentDevice, current_device, is_capturing
from tilewise.tuner.runtime.server_client import ServerClient, ServerQuery, copy_of
from tilewise.tuner.runtime.shared_choices import SharedChoice, shared_choices
from tilewise.tuner.runtime.untuned_shapes import UntunedShapes
from tilewise.tuner.space.problem_checks import config_text, make_problem
from tilewise.tuner.space.search_space import is_launchable
from tilewise.tuner.workers.worker import describe

__all__ = ["WAIT_SECONDS", "Choice", "ConfigSelector"]

_log = logging.getLogger("tilewise.runtime")

WAIT_SECONDS = 0.05
"""Seconds that the first launch of a shape may wait for a server; later launches never wait."""

_COMPILE_ERRORS = {
    "OutOfResources",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "PTXASError",
    "MLIRCompilationError",
    "UnsupportedLanguageConstruct",
}
"""Names of the exceptions that a launch raises before anything runs."""

DEFAULT = "default"
"""`Choice.match` when not even the prior had an answer."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The config for a shape. `match` is a `Match` or `default`, and `why` is one sentence. `answer` is the result that
    the config comes from, or None for the spec's default."""

    question: Question
    config: Config
    match: str
    why: str
    answer: Result | None = None

    @property
    def is_guess(self) -> bool:
        """Return True if the config was never timed for this shape."""
        return self.match not in (Match.EXACT, Match.OLDER)

    def __str__(self) -> str:
        config = config_text(self.config)
        return f"{self.question}: {self.match}: {config} ({self.why})"


class ConfigSelector:
    """The chooser of configs for one spec. It may be called from any thread, and also in the child of a fork.

    `source` is an export file, a database URL, a server's URL, a store, or None for the configured database. A source
    that cannot be used is logged once and then treated as empty, because it must not stop the user's program.
    """

    def __init__(
        self,
        spec: KernelSpec,
        source: str | Path | Store | None,
        *,
        device: str | None = None,
        match: str = Match.PREDICTED,
        timeout: float = WAIT_SECONDS,
        explain: bool = False,
        on_change: Callable[[Choice], None] = lambda choice: None,
    ) -> None:
        self.spec, self._device, self._match = _located(spec), device, match_of(match)
        self._given, self._wait, self._explain, self._on_change = source, timeout, explain, on_change
        self._told_of_source = False
        self._server = str(source) if isinstance(source, str) and is_server(source) else ""
        self.choices: dict[str, Choice] = {}
        self._start()
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _restart(me()))
        self._source()  # read now, not at the first launch

    def _start(self) -> None:
        """Create the locks, threads and connections of this process."""
        self.lock = threading.RLock()
        self._locals: dict[int, CurrentDevice] = {}
        self._opened: Opened | None = None
        self._unwritten: list[Choice] = []
        settings = read_settings()
        self._remote = (
            ServerClient(self._server, copy_of(self._server, settings.cache_folder)) if self._server else None
        )
        url = settings.misses_server
        # the server that answers look-ups learns of untuned shapes from those
        self._misses_server = ServerClient(url, None) if url and url != self._server else None

    def choose(self, dims: Shape, dtype: str, tensor: Any) -> Choice:
        """Return the config for a problem of these dims and flags on the device of `tensor` (a torch tensor).

        Raises `UsageError` if the kernel does not take the problem or the device is unknown.
        """
        local = self._local(tensor)
        problem = make_problem(self.spec, dims, dtype)
        question = Question(replace(problem, dtype=dtype), local.target.name)
        if (known := self.choices.get(question.key)) is not None:
            return known
        answers: list[Result] = []
        choice = self._pinned(question, problem, local)
        if choice is None:  # outside the lock: this may wait for a server
            choice = self._agreed(self._chosen(question, problem, local, answers), problem, local)
        with self.lock:
            if answers and self._is_better(answers[0], choice) and not shared_choices().are_shared:
                choice = _choice(question, answers[0])
            return self.choices.get(question.key) or self._keep(choice)

    def _pinned(self, question: Question, problem: Problem, local: CurrentDevice) -> Choice | None:
        """Return the choice that the user's file of choices has for the problem."""
        return self._usable(shared_choices().pinned(question, self.source_hash), problem, local)

    def _agreed(self, own: Choice, problem: Problem, local: CurrentDevice) -> Choice:
        """Return what all processes of the job launch for the problem: the first one's choice."""
        given = SharedChoice(own.question, self.source_hash, dict(own.config), own.match, own.why)
        agreed = shared_choices().agreed(given)
        return own if agreed == given else self._usable(agreed, problem, local) or own

    def _usable(self, shared: SharedChoice | None, problem: Problem, local: CurrentDevice) -> Choice | None:
        """Return a shared choice as one of this process, unless it cannot be passed to the kernel: then warn."""
        if shared is None:
            return None
        if is_launchable(self.spec, problem, local.target, shared.config):
            return Choice(shared.question, shared.config, shared.match, shared.why)
        _log.warning("%s: the shared choice %s is not launchable here", shared.question, dict(shared.config))
        return None

    def instead(self, choice: Choice, error: Exception) -> Choice | None:
        """Return the spec's default if the error shows that a guess cannot run here, and None otherwise."""
        if type(error).__name__ not in _COMPILE_ERRORS or not choice.is_guess:
            return None
        problem = choice.question.problem
        target = next(local.target for local in self._locals.values() if local.target.name == choice.question.device)
        default = self._default(choice.question, problem, target)
        reason = f"{type(error).__name__}: {describe(error)}"
        with self.lock:
            return self._keep(
                dataclasses.replace(default, why=f"the guess {dict(choice.config)} does not run here: {reason}")
            )

    def _chosen(self, question: Question, problem: Problem, local: CurrentDevice, answers: list[Result]) -> Choice:
        """Return the best choice now. A server's answer, early or late, is added to `answers`."""
        find = partial(
            resolve_with_fallback,
            question=question,
            spec=self.spec,
            source_hash=self.source_hash,
            toolchain=local.toolchain or None,
            target=local.target,
        )
        result = find(self._source(), match=Match.EXACT)
        if self._remote is not None:  # asked even on a hit in the local copy: its newer answer serves the next process
            self._ask(self._remote, question, problem, local, answers, wait=result is None)
        result = result or (answers[0] if answers else find(self._source(), match=self._match))
        return self._default(question, problem, local.target) if result is None else _choice(question, result)

    def _ask(
        self,
        remote: ServerClient,
        question: Question,
        problem: Problem,
        local: CurrentDevice,
        answers: list[Result],
        *,
        wait: bool,
    ) -> None:
        """Ask the server, and wait for its answer within the limit if `wait` is set.

        A later answer replaces the choice made meanwhile if that one relaxed further.
        """
        answered = threading.Event()

        def note(result: Result | None) -> None:
            if result is None or not is_launchable(self.spec, problem, local.target, _config(result)):
                answered.set()
                return
            answers.append(result)
            answered.set()
            if shared_choices().are_shared:  # others go on with what was agreed
                return
            with self.lock:
                known = self.choices.get(question.key)
                if known is not None and self._is_better(result, known):
                    self._on_change(self._keep(_choice(question, result)))

        cores = None if self._device else local.target.cores
        remote.ask(ServerQuery(question, self.source_hash, self._match, local.toolchain or None, cores, note))
        if wait and not remote.is_away and not is_capturing():
            answered.wait(self._wait)

    def _is_better(self, result: Result, known: Choice) -> bool:
        steps = [*Match, DEFAULT]
        return steps.index(result.match) < steps.index(known.match)

    def _keep(self, choice: Choice) -> Choice:
        self.choices[choice.question.key] = choice
        _log.info("%s", choice)
        if self._explain:
            print(f"tilewise: {choice}", file=sys.stderr)
        if choice.is_guess:
            self._unwritten.append(choice)
            if not self._told_of_source:
                self._tell_of_another_source(choice.question)
        if self._unwritten and not is_capturing():
            self._write_misses()
        return choice

    def _write_misses(self) -> None:
        file = read_settings().misses_file
        guesses, self._unwritten = self._unwritten, []
        if self._misses_server is not None:
            for choice in guesses:  # the look-up reports the shape: a server may make a job of one it does not find
                self._misses_server.ask(ServerQuery(choice.question, self.source_hash, Match.EXACT))
        try:
            for choice in guesses:
                if file is not None:
                    UntunedShapes(file).add(choice.question, self.spec.origin, choice.match)
        except TilewiseError as error:
            _log.warning("untuned shapes are not recorded: %s", error)

    def _tell_of_another_source(self, question: Question) -> None:
        """Warn once if the kernel has results, all of which are for another version of its source."""
        source, self._told_of_source = self._source(), True
        known = source.answers(question, None) or source.near(question, None, math.inf)
        if known and not source.near(question, self.source_hash, math.inf):
            _log.warning(
                "the source of %s has changed since it was tuned for %s, so its results are not used; tune it again",
                question.kernel,
                question.device,
            )

    def _default(self, question: Question, problem: Problem, target: Target) -> Choice:
        return Choice(question, self.spec.default(problem, target), DEFAULT, "no stored result or prediction applies")

    def _local(self, tensor: Any) -> CurrentDevice:
        index = tensor.get_device()
        if index not in self._locals:
            self._locals[index] = self._named_device(self._device) if self._device else current_device(tensor)
        return self._locals[index]

    def _named_device(self, device: str) -> CurrentDevice:
        """Return the device that the user named: the only way to use the configs of another chip than this one."""
        name = device_name(device)
        target = self._source().target(name)
        if target is None:
            if not is_device_name(name):
                _log.warning("unknown device %r: no results are stored for it; assuming an Ascend part", name)
            target = known_target(name, _CORES)
        return CurrentDevice(target, "")

    def _source(self) -> Opened:
        if self._opened is None:
            place = copy_of(self._server, read_settings().cache_folder) if self._server else self._given
            try:
                missing = self._server and not Path(str(place)).exists()
                self._opened = Nothing() if missing else open_source(place)
            except TilewiseError as error:
                _log.warning("continuing without tuned configs of %s: %s", self.spec.name, error)
                self._opened = Nothing()
        return self._opened

    @cached_property
    def source_hash(self) -> str:
        return source_hash(self.spec)

    def after_fork(self) -> None:
        """Start anew in the child process of a fork."""
        self._start()


_CORES = 40
"""Core count of a device that is known by its name only."""


def _located(spec: KernelSpec) -> KernelSpec:
    """Return the spec with its origin, which its source hash needs; without one, only its function identifies it."""
    try:
        return registry.located(spec)
    except BadSpec as error:
        _log.warning("stored results of %s cannot be found: %s", spec.name, error)
        return spec


def _config(result: Result) -> Config:
    assert result.winner is not None, "results of a look-up have winners"
    return dict(result.winner.config)


def _choice(question: Question, result: Result) -> Choice:
    assert result.winner is not None, "results of a look-up have winners"
    winner = result.winner
    time_us = "" if winner.time_us is None else f"{winner.time_us:.2f} us {result.scope.clock}"
    toolchain = f"found with {result.scope.toolchain}" if result.match == Match.OLDER else ""
    why = ", ".join(part for part in (time_us, toolchain, winner.why) if part)
    return Choice(question, _config(result), result.match, why, result)


def _restart(selector: ConfigSelector | None) -> None:
    if selector is not None:
        forget_opened()
        selector.after_fork()
