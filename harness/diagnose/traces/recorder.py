"""Sorting a trace's events into columns, one method a category."""

from collections.abc import Callable
from typing import Any

from harness.diagnose.traces import names
from harness.diagnose.traces.recording import CollectiveKey, Recording

Event = dict[str, Any]
"""One event as somebody's profiler wrote it: nothing about its values is certain."""

_STEP = "ProfilerStep#"


class Recorder:
    """Fills a recording. `handlers` has a method for each category that matters, by the event's `cat`.

    Capitalised categories are those of torch before 1.13. The methods may raise KeyError, TypeError or
    ValueError where an event makes no sense.
    """

    def __init__(self, recording: Recording) -> None:
        self._to = recording
        self.handlers: dict[object, Callable[[Event, int, int], None]] = {
            "cpu_op": self._operation,
            "Operator": self._operation,
            "user_annotation": self._annotation,
            "kernel": self._kernel,
            "Kernel": self._kernel,
            "gpu_memcpy": self._copy,
            "Memcpy": self._copy,
            "gpu_memset": self._copy,
            "Memset": self._copy,
            "cuda_runtime": self._runtime,
            "cuda_driver": self._runtime,
            "Runtime": self._runtime,
            "hip_runtime": self._runtime,
            "python_function": self._frame,
        }

    def take(self, event: Event) -> None:
        """Record one event, or drop it."""
        if event["ph"] == "X":
            handler = self.handlers.get(event.get("cat"))
            if handler is not None:
                begin = round(event["ts"] * 1000)
                lasts = round(event.get("dur", 0) * 1000)
                if lasts < 0:
                    self._to.impossible_steps += _is_step(event)
                    raise ValueError("it ends before it begins")
                handler(event, begin, begin + lasts)
        elif event.get("name") == "[memory]":
            self._memory(event)

    def _operation(self, event: Event, begin: int, end: int) -> None:
        name, to = event["name"], self._to
        if name.startswith("aten::"):
            thread = to.threads.number(event["tid"])
            args = event.get("args") or {}
            # What runs with gradients on has a number; autograd's own nodes name the thread of the forward.
            if "Sequence number" in args and not args.get("Fwd thread id"):
                to.forward.add(begin, end, thread)
            if not to.on_device:
                to.ops.add(begin, end, thread, to.op_names.number(name))
            to.ops_of_thread[thread] = to.ops_of_thread.get(thread, 0) + 1
        elif name.startswith(names.EVALUATION):
            checkpointed = name == names.CHECKPOINTED
            to.evaluations.add(begin, end, to.threads.number(event["tid"]), int(checkpointed))
        elif name.startswith("c10d::"):
            if not to.on_device:
                self._collective(event, begin, end, name)
        elif name.startswith(_STEP):
            self._annotation(event, begin, end)

    def _annotation(self, event: Event, begin: int, end: int) -> None:
        name, to = event["name"], self._to
        if name.startswith(_STEP):
            if end == begin:
                to.impossible_steps += 1
                raise ValueError("a step that takes no time")
            number = int(name.removeprefix(_STEP))
            to.steps.add(begin, end, to.threads.number(event["tid"]), number)
        elif names.is_loader(name):
            to.loader.add(begin, end, to.threads.number(event["tid"]))
        elif name.startswith(("gloo:", "mpi:", "ucc:")):
            if not to.on_device:
                self._collective(event, begin, end, name)
        elif names.names_recompute(name):
            to.recomputed.add(begin, end, to.threads.number(event["tid"]))

    def _kernel(self, event: Event, begin: int, end: int) -> None:
        self._device(begin, end)
        name = event["name"]
        args = event.get("args") or {}
        if "Collective name" in args or names.is_collective_kernel(name):
            self._collective(event, begin, end, name)
        else:
            self._compute(name, args, begin, end)

    def _copy(self, event: Event, begin: int, end: int) -> None:
        self._device(begin, end)
        self._compute(event["name"], event.get("args") or {}, begin, end)

    def _compute(self, name: str, args: Event, begin: int, end: int) -> None:
        self._to.correlations.append(int(args.get("correlation", -1)))
        self._to.kernels.add(begin, end, 0, self._to.kernel_names.number(name))

    def _runtime(self, event: Event, begin: int, end: int) -> None:
        name, to = event["name"], self._to
        if names.is_launch(name):
            correlation = int(event["args"]["correlation"])
            to.launches.add(begin, end, to.threads.number(event["tid"]), correlation)
        elif names.is_allocation(name):
            to.allocations.add(begin, end, to.threads.number(event["tid"]))

    def _collective(self, event: Event, begin: int, end: int, name: str) -> None:
        args = event.get("args") or {}
        collective = str(args.get("Collective name", ""))
        nelems = args.get("In msg nelems")
        key = CollectiveKey(
            collective or name,
            None if nelems is None else int(nelems),
            args.get("dtype"),
            args.get("Process Group Description") or args.get("Process Group Name"),
            names.is_p2p(name, collective),
        )
        self._to.collectives.add(begin, end, self._to.threads.number(event["tid"]), self._to.keys.number(key))

    def _frame(self, event: Event, begin: int, end: int) -> None:
        if names.is_logging(event["name"]):
            self._to.logging.add(begin, end, self._to.threads.number(event["tid"]))

    def _memory(self, event: Event) -> None:
        args = event["args"]
        if args.get("Device Type"):
            device = self._to.threads.number(("device", args.get("Device Id")))
            self._to.reserved.add(round(event["ts"] * 1000), int(args["Total Reserved"]), 0, device)

    def _device(self, begin: int, end: int) -> None:
        """From the first kernel on, the CPU's operations do not matter."""
        if not self._to.on_device:
            self._to.on_device = True
            self._to.ops.clear()
            self._to.collectives.clear()
        if end == begin:
            raise ValueError("work of a device that takes no time")


def _is_step(event: Event) -> bool:
    return str(event.get("name")).startswith(_STEP)
