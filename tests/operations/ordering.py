"""A world with processes in every state, and operations on them, worked at in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery import operations
from recovery.operations import OperationRequest, OperationWorker
from recovery.operations.advance import advance
from recovery.operations.kinds import Kind, kind_of
from recovery.records import Operation, OperationKind, OperationResult, OperationState, ProcessState
from recovery.settings import Settings
from tests.waiting import wait_until
from tests.world import World

WHY = "a test"


class Ordering(World):
    """A world whose process types are `order`, which ends well, and `refund`, which breaks while `broken`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.broken = True

        @self.app.actor()
        def step(number: int) -> int:
            if self.broken and number < 0:
                raise ValueError("no")
            return number + 1

        @self.app.process()
        def order(number: int) -> Any:
            return step.schedule(step.schedule(number))

        @self.app.process()
        def refund(number: int) -> Any:
            return step.schedule(-number)

        self.tell()

    def worker(self, name: str = "worker") -> OperationWorker:
        return OperationWorker(self.app.resources, self.app.outbox, name)

    def kind(self, name: str) -> type[Kind]:
        """What carries out operations of this kind."""
        return type(kind_of(OperationKind(name), self.app.resources, self.app.outbox))

    def ask(self, kind: str, selection: str = "", **more: Any) -> Operation:
        """Order an operation."""
        asked = OperationRequest(kind, selection, everything=not selection, **more)
        return operations.start(self.app.resources, asked, WHY, by="ann")

    def now(self, operation: Operation) -> Operation:
        """As it is now."""
        return operations.find(self.app.resources, operation.id)

    def bring_on(
        self, operation: Operation, *states: OperationState, worker: OperationWorker | None = None
    ) -> Operation:
        """Work until it is in one of these states: planned or over."""
        wanted = states or (OperationState.PLANNED, OperationState.FINISHED, OperationState.CANCELLED)
        worker = worker or self.worker()

        def there() -> bool:
            worker.run_once(5)
            return self.now(operation).state in wanted

        wait_until(there, 40, f"operation {operation.id} to be {', '.join(wanted)}")
        return self.now(operation)

    def advance(self, operation: Operation) -> Operation | None:
        """Take it a step further, without any work at its ranges."""
        return advance(self.app.resources, self.now(operation))

    def run_through(self, kind: str, selection: str = "", **more: Any) -> Operation:
        """Ask for it, have it planned, apply it, and have it finished."""
        planned = self.bring_on(self.ask(kind, selection, **more))
        operations.apply(self.app.resources, planned.id)
        return self.bring_on(planned)

    def results(self, operation: Operation) -> dict[str, OperationResult]:
        """{process: what was found and done}."""
        found = self.store.operation_results.pages(operation.id)
        return {result.process: result for page in found for result in page}

    def orders(self, count: int) -> list[str]:
        """Processes that run, with a task queued."""
        return [self.start("order", number) for number in range(count)]

    def refunds(self, count: int) -> list[str]:
        """Processes that are broken."""
        started = [self.start("refund", number + 1) for number in range(count)]
        for process_id in started:
            assert self.bring_to_end(process_id).state is ProcessState.BROKEN
        return started

    def end_of(self, process_id: str) -> str:
        """The process, which has ended."""
        self.bring_to_end(process_id)
        return process_id

    def states(self, process_ids: list[str]) -> list[str]:
        return [self.process(process_id).state.value for process_id in process_ids]


def adds_up(world: Ordering, operation: Operation) -> None:
    """Its totals are those of its results, and each process is counted once."""
    results, totals = world.results(operation), operation.applied or operation.planned
    assert totals is not None
    assert totals.found == len(results)
    by = {
        name: [r.state.value for r in results.values()].count(name) for name in ("done", "nothing", "changed", "error")
    }
    assert (totals.done, totals.nothing, totals.changed, totals.errors) == tuple(by.values())
    if operation.applied is not None:
        assert sum(by.values()) == totals.found == totals.processes


Case = Callable[[Ordering], None]
