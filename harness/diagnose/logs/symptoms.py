"""Which deaths and errors only follow from others: they are never causes (DIAGNOSIS, logs, rule 3)."""

from harness.diagnose.logs.event import Event
from harness.diagnose.logs.phrases import Phrase
from harness.diagnose.logs.story import Story

CLEANUP_AFTER_S, CLEANUP_UNTIL_S = 20.0, 120.0
"""A launcher kills what does not end by itself some 30 s after it asked (torch elastic; SLURM's KillWait)."""

ABORTS = (
    "watchdog_timeout",
    "watchdog_ended",
    "taking_down",
    "terminate",
    "nccl_error",
    "gloo_abort",
    "heartbeat",
)

OF_OTHERS = (
    *("gloo_wait", "store_lost", "nccl_error", "detail", "barrier_lost", "barrier_missed", "init_timeout"),
    *("desync_absent", "desync_joined", "watchdog_timeout", "watchdog_ended"),
)
"""What a rank says of others, or of all."""

COMMUNICATION = Phrase(
    r"gloo/transport|Connection closed by peer \[|Connection reset by peer \[|Read error \[|Write error \[|"
    r"Timed out waiting \d{1,12} ?ms for (?:send|recv)|monitoredBarrier|Dist(?:Network|Backend|Store)Error|"
    r"NCCL error|nccl\w{1,30}Error|ProcessGroup(?:Gloo|NCCL)|TCPStore|sendBytes|recvValue|"
    r"ollective operation timeout|NCCL communicator (?:was )?(?:aborted|encountered)|Rendezvous\w{1,30}Error|"
    r"Detected mismatch between collectives|WorkNCCL|store based barrier|waiting for clients|"
    r"Socket Timeout|Broken pipe|BrokenPipeError|ConnectionResetError|ConnectionAbortedError|"
    r"ConnectionRefusedError|"
    r"^(?:RuntimeError: )?Connection reset by peer|store->get|key-value store|Process "
    r"group .{0,40}(?:destroyed|aborted)",
    *("gloo/transport", "by peer", "error [", "Timed out waiting", "monitoredBarrier", "NCCL", "nccl"),
    *("ProcessGroup", "TCPStore", "sendBytes", "recvValue", "ollective operation timeout", "Rendezvous"),
    *("mismatch between", "store based", "waiting for clients", "Socket Timeout", "Broken", "Connection"),
    *("store->get", "key-value store", "Process group", "Dist"),
)
WRAPPERS = (
    *("ChildFailedError", "SignalException", "SystemExit", "KeyboardInterrupt", "CalledProcessError"),
    *("RayTaskError", "RayActorError", "ActorDiedError", "WorkerCrashedError", "ProcessExitedException"),
    *("ProcessRaisedException", "TrainingFailedError", "RemoteTraceback", "BdbQuit", "GeneratorExit"),
)
STOPPED = Phrase(
    r"killed by signal: (?:Terminated|Interrupt|Hangup)|Received SIG(?:TERM|INT|HUP)",
    *("killed by signal", "Received SIG"),
)
RAISED = (
    *("exception", "cuda_launch", "cuda_other", "device_assert", "loader_death", "ais_loader", "device_oom"),
    *("ecc", "shared_memory", "storage", "crash"),
)
"""What a program says of itself; some of it is handled."""

NOT_FATAL = ("Warning", "StopIteration")
"""What names of exceptions end with that need not end anything."""


def is_communication(event: Event) -> bool:
    """Whether an exception speaks of others that were lost, not of what this rank did."""
    return bool(COMMUNICATION.search(event.text)) or bool(COMMUNICATION.search(event.words.get("said", "")))


def is_wrapper(event: Event) -> bool:
    """Whether an exception only reports that a process ended."""
    raised = event.words.get("type", event.text)
    return any(name in raised for name in WRAPPERS)


def why_symptom(event: Event, story: Story) -> str | None:
    """Why an event is a consequence of something else, None if it may be a cause."""
    if event.what in ("exit", "block_exit", "task_end", "shell_killed", "return_code"):
        if later := story.later_step(event):
            return f"the job went on: {later.place}"
        return _why_exit(event, story)
    if event.what in RAISED:
        return _why_exception(event, story)
    return None


def _why_exception(event: Event, story: Story) -> str | None:
    if event.what == "exception":
        if is_wrapper(event):
            return "it only reports that a process ended"
        if is_communication(event):
            return "it speaks of lost communication"
        if event.words.get("type", "").endswith(NOT_FATAL):
            return "it need not end anything"
    if STOPPED.search(event.text):
        return "somebody asked it to end"
    if event.what == "exception" and event.words.get("ignored"):
        return "Python ignored it at the end"
    if later := story.later_step(event):
        said = f"step {later.numbers['step']}" if later.what == "step" else "the training was completed"
        return f"the job went on: {said} at {later.place}"
    if event.rank is None:
        return None
    for asked in story.of_rank(event.rank, "sigterm", "preempted"):
        if story.before(asked, event):
            return f"the rank had been asked to end at {asked.place}"
    for timeout in story.of_rank(event.rank, "watchdog_timeout"):
        if story.before(timeout, event):
            return f"it came after the same rank's timeout at {timeout.place}"
    return None


def _why_exit(event: Event, story: Story) -> str | None:
    code, signal = exit_code(event)
    ranks = _ranks_of(event, story)
    if event.what == "task_end" and event.words.get("how") == "Out Of Memory":
        return None
    if signal == 15:
        return "a launcher or a person asked it to end"
    if _signalled(event, story):
        return "its launcher had told it to end"
    if signal == 6 and any(e.rank in (None, *ranks) for e in story.of("bad_alloc")):
        return None
    if signal == 6 and (abort := _abort_of(ranks, story)) is not None:
        return f"an abort that follows {abort.place}"
    if signal == 9 and (earlier := _failed_before(event, story)):
        return f"the launcher's clean-up after {earlier.place}"
    if signal is None and code == 0:
        return "it ended well"
    if signal is None:
        return _why_code(event, ranks, story)
    return None


def _why_code(event: Event, ranks: tuple[int, ...], story: Story) -> str | None:
    """An exit code is a symptom where all that the rank says for itself is about others."""
    if not ranks:
        return None
    own = [e for rank in ranks for e in story.of_rank(rank) if e.what in ("exception", *OF_OTHERS)]
    told = [e for e in own if e.what != "exception" or not is_wrapper(e)]
    if told and all(e.what != "exception" or is_communication(e) for e in told):
        return f"all that it says is of lost communication: {told[0].place}"
    if any(rank in story.waits.waiting for rank in ranks):
        return "its own watchdog had given up"
    for abort in story.of("barrier_lost", "barrier_missed"):
        if abort.rank in ranks:
            return f"it lost others: {abort.place}"
    return None


def exit_code(event: Event) -> tuple[int | None, int | None]:
    """Exit code and signal of an end, either None; 128 + n is signal n."""
    code = event.numbers.get("code")
    if event.what == "task_end" and code is None:
        how = event.words.get("how", "")
        signals = {"Killed": 9, "Terminated": 15, "Aborted": 6, "Segmentation fault": 11, "Bus error": 7}
        return None, signals.get(how)
    if code is None:
        return None, None
    if code < 0:
        return None, -code
    return (None, code - 128) if 128 < code < 160 else (code, None)


def _ranks_of(event: Event, story: Story) -> tuple[int, ...]:
    if event.rank is not None:
        return (event.rank,)
    return event.named if event.what == "task_end" and story.census.tasks_are_ranks else ()


def _signalled(event: Event, story: Story) -> bool:
    pid = event.numbers.get("pid")
    return pid is not None and any(
        e.numbers.get("pid") == pid and _one_machine(event, e) and story.before(event, e) is not True
        for e in story.of("closing")
    )


def _one_machine(one: Event, other: Event) -> bool:
    """Whether two lines speak of processes of one machine: numbers of processes repeat on others."""
    if one.host and other.host:
        return one.host == other.host
    return one.file == other.file


def _abort_of(ranks: tuple[int, ...], story: Story) -> Event | None:
    """The abort of a watchdog or a library behind a SIGABRT: the rank's own, else anybody's in these logs."""
    aborts = (*ABORTS, "desync_absent", "desync_joined", "detail", "barrier_missed", "barrier_lost")
    own = (e for rank in ranks for e in story.of_rank(rank) if e.what in aborts)
    return next(own, None) or next(iter(story.of(*aborts)), None)


def _failed_before(event: Event, story: Story) -> Event | None:
    """Another rank's failure, 20 to 120 s before a kill; or any at all where times do not tell."""
    for other in story.of(
        *ABORTS,
        "exception",
        "device_oom",
        "device_assert",
        "exit",
        "block_exit",
        "ecc",
        "cuda_launch",
        "loader_death",
        "cancelled",
        "death_signal",
    ):
        if other is event or (other.rank is not None and other.rank == event.rank):
            continue
        if (
            other.what in ("exit", "block_exit")
            and exit_code(other)[1] in (9, 15, None)
            and exit_code(other)[0] in (0, None)
        ):
            continue
        seconds = story.seconds_between(other, event)
        if seconds is not None and CLEANUP_AFTER_S <= seconds <= CLEANUP_UNTIL_S:
            return other
    return None
