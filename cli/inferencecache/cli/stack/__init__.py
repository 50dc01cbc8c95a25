"""The whole system on one machine: which processes (`plan`), kept running (`supervisor`, `process`).

The plan is pure: names, command lines and addresses. The supervisor starts it stage by stage, waits
for readiness, starts again what dies and stops everything in bounded time.
"""

from inferencecache.cli.stack.plan import Plan, StackSettings, plan_stack
from inferencecache.cli.stack.process import NotReadyError
from inferencecache.cli.stack.supervisor import Supervisor

__all__ = ["NotReadyError", "Plan", "StackSettings", "Supervisor", "plan_stack"]
