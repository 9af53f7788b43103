"""When a thread recomputes activations instead of computing something new."""

from dataclasses import dataclass

import numpy as np

from harness.diagnose.traces.intervals import Bools, Cover, Innermost, Ints, cover, innermost
from harness.diagnose.traces.recording import Recording

_CHECKPOINTED = 1


@dataclass(frozen=True)
class Recomputing:
    """Per thread: annotated or recognised spans, and what autograd evaluates innermost."""

    spans: dict[int, Cover]
    evaluated: dict[int, Innermost]

    def at(self, thread: Ints, moments: Ints) -> Bools:
        """Whether each thread recomputed at each moment. Both arrays have one entry a moment."""
        found = np.zeros(len(moments), np.bool_)
        for number in {*self.spans, *self.evaluated}:
            mine = thread == number
            when = moments[mine]
            inside = np.zeros(len(when), np.bool_)
            if number in self.spans:
                inside |= self.spans[number].holds(when)
            if number in self.evaluated:
                inside |= self.evaluated[number].at(when) == _CHECKPOINTED
            found[mine] = inside
        return found


def recomputing(recording: Recording) -> Recomputing:
    """Find it by three signs.

    Reentrant checkpoints: inside CheckpointFunctionBackward, but in no evaluation nested in that (which is
    the backward pass of what was recomputed). Others, torchtitan's too: an operation inside an evaluation
    that is itself recorded for a backward pass (a gradient of a gradient looks the same). And annotations.
    What torch.compile recomputes inside one graph leaves no sign.
    """
    evaluations, forward = recording.evaluations.columns(), recording.forward.columns()
    marks = recording.recomputed.columns()
    evaluated = {}
    for thread in np.unique(evaluations.thread).tolist():
        mine = evaluations.where(evaluations.thread == thread)
        evaluated[thread] = innermost(mine.begin, mine.end, mine.label)
    spans = {}
    for thread in np.unique(np.concatenate((forward.thread, marks.thread))).tolist():
        again = forward.where(forward.thread == thread)
        if thread in evaluated:
            again = again.where(evaluated[thread].at(again.begin) >= 0)
        else:
            again = again.where(np.zeros(len(again), np.bool_))
        named = marks.where(marks.thread == thread)
        begin = np.concatenate((again.begin, named.begin))
        spans[thread] = cover(begin, np.concatenate((again.end, named.end)))
    return Recomputing(spans, evaluated)


def launched_while_recomputing(recording: Recording, found: Recomputing) -> Bools:
    """For each kernel: whether the call that launched it was made while its thread recomputed."""
    launches = recording.launches.columns()
    wanted = np.array(recording.correlations, np.int64)
    if not len(launches):
        return np.zeros(len(wanted), np.bool_)
    order = np.argsort(launches.label, kind="stable")
    launches = launches.where(order)
    at = np.minimum(np.searchsorted(launches.label, wanted), len(launches) - 1)
    known = launches.label[at] == wanted
    return np.asarray(known & found.at(launches.thread[at], launches.begin[at]), np.bool_)
