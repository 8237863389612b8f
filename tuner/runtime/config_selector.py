"""Which config a shape is launched with, and why: the slow half of `tuned`, run once a shape and process."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tilewise.db.records import Config, Question, Result
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
from tilewise.tuner.runtime.untuned_shapes import UntunedShapes
from tilewise.tuner.space.problem import config_text, make_problem
from tilewise.tuner.space.search_space import is_launchable
from tilewise.tuner.workers.worker import describe

__all__ = ["WAIT_SECONDS", "Choice", "ConfigSelector"]

_log = logging.getLogger("tilewise.runtime")

WAIT_SECONDS = 0.05
"""How long the first launch of a shape may wait for a server; later launches never do."""

_DOES_NOT_FIT = {
    "OutOfResources",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "PTXASError",
    "MLIRCompilationError",
    "UnsupportedLanguageConstruct",
}
"""Exceptions that a launch raises before anything runs, by name."""

DEFAULT = "default"
"""`Choice.match` where not even the prior had an answer."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a shape is launched with. `match` is a `Match` or `default`; `why` is one sentence; `answer` is the result
    that it was chosen for, None where it is the spec's default."""

    question: Question
    config: Config
    match: str
    why: str
    answer: Result | None = None

    @property
    def is_guess(self) -> bool:
        """Whether the config was never timed for this shape."""
        return self.match not in (Match.EXACT, Match.OLDER)

    def __str__(self) -> str:
        config = config_text(self.config)
        return f"{self.question}: {self.match}: {config} ({self.why})"


class ConfigSelector:
    """Chooses for one spec. Calls may come from any thread, and go on in the child of a fork.

    `source` is an export file, a database URL, a server's URL, a store, or None for the configured database. One that
    cannot be used is logged once and then as if it were empty: it must not end the program that wants to be fast.
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
        self._place, self._wait, self._explain, self._on_change = source, timeout, explain, on_change
        self._server = str(source) if isinstance(source, str) and is_server(source) else ""
        self.choices: dict[str, Choice] = {}
        self._start()
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _restart(me()))
        self._source()  # read now, so that no launch has to

    def _start(self) -> None:
        """What belongs to this process: locks, threads and connections."""
        self.lock = threading.RLock()
        self._locals: dict[int, CurrentDevice] = {}
        self._opened: Opened | None = None
        self._unwritten: list[Choice] = []
        settings = read_settings()
        self._remote = (
            ServerClient(self._server, copy_of(self._server, settings.cache_folder)) if self._server else None
        )
        told = settings.misses_server
        self._told = ServerClient(told, None) if told and told != self._server else None  # whom it asks knows anyway

    def choose(self, dims: dict[str, int], dtype: str, tensor: Any) -> Choice:
        """The config for a problem on the device of `tensor` (a torch tensor).

        Raises `UsageError` for a problem that the kernel does not take, or a device that cannot be told.
        """
        local = self._local(tensor)
        problem = make_problem(self.spec, dims, dtype)
        question = Question(replace(problem, dtype=dtype), local.target.name)
        if (known := self.choices.get(question.key)) is not None:
            return known
        answers: list[Result] = []
        choice = self._chosen(question, problem, local, answers)  # not under the lock: it may wait for a server
        with self.lock:
            if answers and self._is_better(answers[0], choice):
                choice = _choice(question, answers[0])
            return self.choices.get(question.key) or self._keep(choice)

    def instead(self, choice: Choice, error: Exception) -> Choice | None:
        """The spec's default, where the error of a launch says that a guess does not run here; None for any other."""
        if type(error).__name__ not in _DOES_NOT_FIT or not choice.is_guess:
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
        """The choice of now; what a server says, now or later, is added to `answers`."""
        find = partial(
            resolve_with_fallback,
            question=question,
            spec=self.spec,
            source_hash=self.source_hash,
            toolchain=local.toolchain or None,
            target=local.target,
        )
        result = find(self._source(), match=Match.EXACT)
        if self._remote is not None:  # asked for what is kept too: the server may know better by the next process
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
        """Wait for the server's answer within the limit; one that comes later replaces what was chosen meanwhile,
        where that relaxed further."""
        answered = threading.Event()

        def note(result: Result | None) -> None:
            if result is None or not is_launchable(self.spec, problem, local.target, _config(result)):
                answered.set()
                return
            answers.append(result)
            answered.set()
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
        if self._unwritten and not is_capturing():
            self._write_misses()
        return choice

    def _write_misses(self) -> None:
        file = read_settings().misses_file
        missed, self._unwritten = self._unwritten, []
        if self._told is not None:
            for choice in missed:  # looking it up there is telling: a server may make a job of what it does not find
                self._told.ask(ServerQuery(choice.question, self.source_hash, Match.EXACT))
        try:
            for choice in missed:
                if file is not None:
                    UntunedShapes(file).add(choice.question, self.spec.origin, choice.match)
        except TilewiseError as error:
            _log.warning("untuned shapes are not kept: %s", error)

    def _default(self, question: Question, problem: Problem, target: Target) -> Choice:
        return Choice(question, self.spec.default(problem, target), DEFAULT, "nothing is known of this kernel here")

    def _local(self, tensor: Any) -> CurrentDevice:
        index = tensor.get_device()
        if index not in self._locals:
            self._locals[index] = self._asked_for(self._device) if self._device else current_device(tensor)
        return self._locals[index]

    def _asked_for(self, device: str) -> CurrentDevice:
        """The device that the user named: another chip than the one here is taken only so."""
        name = device_name(device)
        target = self._source().target(name)
        if target is None:
            if not is_device_name(name):
                _log.warning("nothing is known of a device %r: its name is taken as that of an Ascend part", name)
            target = known_target(name, _CORES)
        return CurrentDevice(target, "")

    def _source(self) -> Opened:
        if self._opened is None:
            place = copy_of(self._server, read_settings().cache_folder) if self._server else self._place
            try:
                missing = self._server and not Path(str(place)).exists()
                self._opened = Nothing() if missing else open_source(place)
            except TilewiseError as error:
                _log.warning("going on without tuned configs of %s: %s", self.spec.name, error)
                self._opened = Nothing()
        return self._opened

    @cached_property
    def source_hash(self) -> str:
        return source_hash(self.spec)

    def after_fork(self) -> None:
        """In a child process."""
        self._start()


_CORES = 40
"""Of a device that is named and of which nothing is known but that."""


def _located(spec: KernelSpec) -> KernelSpec:
    """With its origin, which its source hash goes by; one without is looked up by its function alone."""
    try:
        return registry.located(spec)
    except BadSpec as error:
        _log.warning("results of %s cannot be found: %s", spec.name, error)
        return spec


def _config(result: Result) -> Config:
    assert result.winner is not None, "answers have winners"
    return dict(result.winner.config)


def _choice(question: Question, result: Result) -> Choice:
    assert result.winner is not None, "answers have winners"
    winner = result.winner
    time_us = "" if winner.time_us is None else f"{winner.time_us:.2f} us {result.scope.clock}"
    toolchain = f"found with {result.scope.toolchain}" if result.match == Match.OLDER else ""
    why = ", ".join(part for part in (time_us, toolchain, winner.why) if part)
    return Choice(question, _config(result), result.match, why, result)


def _restart(selector: ConfigSelector | None) -> None:
    if selector is not None:
        forget_opened()
        selector.after_fork()
