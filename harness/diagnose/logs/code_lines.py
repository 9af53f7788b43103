"""What programs say: exceptions, retries, storage, and signs of life such as steps, saves and evaluations."""

import re

from harness.diagnose.logs.classes import CONTEXT, DATA, LOOP, LineClass, Parsed

TRACEBACK = "Traceback (most recent call last)"

EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Timeout|Failure"
    r"|NotFound|Refused|Stop|Expired)\b|(?:[a-z_]\w{0,40}\.){1,8}[A-Z]\w{0,60})(?:: ?(?P<said>.{0,1200}))?$"
)
_RETRY = re.compile(
    r"retrying \(?(\d{1,4})\s?/\s?(\d{1,4})|attempt (\d{1,4})\s?(?:/|of)\s?(\d{1,4})", re.IGNORECASE
)
_MEGATRON = re.compile(
    r"\biteration\s+(\d{1,12})\s*/\s*\d{1,12} \|(?:.{0,200}?elapsed time per iteration "
    r"\(ms\): ([\d.]{1,20}))?"
)
_TITAN = re.compile(r"\bstep:\s*(\d{1,12})\s+loss:")
_DEEPSPEED = re.compile(r"\bstep=(\d{1,12}), skipped=")
_LIGHTNING = re.compile(
    r"\bEpoch \d{1,9}:.{0,300}?\bglobal_step=([\d.]{1,14})(?:.{0,200}?train_step_timing in s=([\d.]{1,14}))?"
)
_BAR = re.compile(r"\bEpoch (\d{1,9}):\s+\d{1,3}%\|.{0,80}?\| (\d{1,12})/(\d{1,12}) \[")
_PLAIN = re.compile(r"\b(?:global_)?(?:step|iter(?:ation)?)[ :=#]{1,3}(\d{1,12})\b", re.IGNORECASE)
_OBJECTS = re.compile(r"(\d{1,9}) (?:of|/) (\d{1,9})")

_BEGIN_END = (
    (
        "checkpoint",
        "end",
        re.compile(
            r"successfully saved checkpoint|Finished (?:saving|staging) the checkpoint|[Cc]heckpoint "
            r"(?:saved|written|complete)"
            r"|[Ss]aved (?:a )?(?:the )?checkpoint|[Ss]ave(?:d)? (?:model )?checkpoint .{0,80}(?:done|"
            r"took|finished)"
            r"|[Cc]heckpoint save (?:completed|finished|took)"
        ),
    ),
    (
        "checkpoint",
        "begin",
        re.compile(
            r"[Ss]aving (?:the |a )?(?:model |distributed )?checkpoint|Staging the checkpoint|"
            r"[Bb]egin(?:ning)? (?:to save )?checkpoint|[Ss]tart(?:ing|ed)? (?:to save |saving "
            r")?(?:a )?checkpoint|[Ss]aving (?:model|weights|state)"
        ),
    ),
    (
        "evaluation",
        "end",
        re.compile(
            r"[Ee]valuation (?:done|complete|finished|took)|[Ff]inished (?:evaluation|evaluating|"
            r"validation)|validation (?:loss|done|complete|finished)|eval(?:uation)? (?:loss|"
            r"results?)"
        ),
    ),
    (
        "evaluation",
        "begin",
        re.compile(
            r"(?:[Rr]unning|[Ss]tart(?:ing|ed)?|[Bb]egin(?:ning)?) (?:the )?(?:evaluation|evaluating|"
            r"eval\b|validation)|[Ee]valuating\b"
        ),
    ),
    (
        "preprocessing",
        "end",
        re.compile(
            r"(?:[Pp]reprocess\w{0,4}|[Tt]okeniz\w{1,6}|[Ii]ndex\w{0,6}|dataset) .{0,80}(?:done|"
            r"finished|complete|took)|[Ff]inished (?:preprocessing|tokenizing|building)"
        ),
    ),
    (
        "preprocessing",
        "begin",
        re.compile(
            r"[Pp]reprocessing\b|[Tt]okenizing\b|[Bb]uilding (?:the )?(?:\w{1,20} )?(?:index|"
            r"dataset)|[Ss]huffling (?:the )?(?:dataset|index)|[Cc]onverting dataset|[Dd]ownloading\b"
        ),
    ),
)
_DONE = re.compile(
    r"Trainer\.fit. stopped: .max_(?:steps|epochs|time)=|[Tt]raining (?:is )?(?:complete|"
    r"completed|finished|done)\b|"
    r"[Ff]inished training(?! epoch)|exiting program at iteration|\[after training is done\]|[Tt]raining "
    r"run (?:complete|finished)|All \d+ steps (?:done|completed)"
)
_STORAGE_WORDS = (
    "no space left on device",
    "disk quota exceeded",
    "input/output error",
    "stale file handle",
    "read-only file system",
    "transport endpoint is not connected",
    "remote i/o error",
)


def exception(message: str) -> Parsed | None:
    """The last line of a traceback, as a type and what it says."""
    found = EXCEPTION.match(message)
    if not found:
        return None
    name = found["type"].rsplit(".", 1)[-1]
    if name.endswith("Warning") or name in ("Signals",):
        return None
    return Parsed(words={"type": found["type"], "said": found["said"] or ""})


def retry(message: str) -> Parsed | None:
    """A retry and its number; ``5/5`` is the last."""
    found = _RETRY.search(message)
    if not found:
        return None
    of = found[1] or found[3], found[2] or found[4]
    return Parsed(numbers={"try": int(of[0]), "of": int(of[1])})


def storage(message: str) -> Parsed | None:
    lower = message.lower()
    word = next((w for w in _STORAGE_WORDS if w in lower), None)
    return Parsed(words={"how": word}) if word else None


def loader(message: str) -> Parsed | None:
    """The AIStore batch loader: fewer objects than it asked for."""
    found = _OBJECTS.search(message)
    return Parsed(numbers={"got": int(found[1]), "wanted": int(found[2])} if found else {})


def step(message: str) -> Parsed | None:
    """The step that a line reports, in one of the frameworks' forms."""
    if found := _MEGATRON.search(message):
        numbers = {"step": int(found[1])}
        if found[2] and found[2].count(".") <= 1:
            numbers["step_ms"] = round(float(found[2]))
        return Parsed(numbers=numbers, words={"form": "megatron"})
    for form, pattern in (("torchtitan", _TITAN), ("deepspeed", _DEEPSPEED)):
        if found := pattern.search(message):
            return Parsed(numbers={"step": int(found[1])}, words={"form": form})
    if (found := _LIGHTNING.search(message)) and found[1].count(".") <= 1:
        numbers = {"step": int(float(found[1]))}
        if found[2] and found[2].count(".") <= 1:
            numbers["step_ms"] = round(1e3 * float(found[2]))
        return Parsed(numbers=numbers, words={"form": "lightning"})
    if found := _BAR.search(message):
        step_ = int(found[1]) * int(found[3]) + int(found[2])
        return Parsed(numbers={"step": step_}, words={"form": "lightning"})
    if found := _PLAIN.search(message):
        return Parsed(numbers={"step": int(found[1])}, words={"form": "plain"})
    return None


def activity(message: str) -> Parsed | None:
    """The beginning or the end of a save, an evaluation, a preparation of data."""
    for site, side, pattern in _BEGIN_END:
        if pattern.search(message):
            return Parsed(f"{site}_{side}")
    return None


def completed(message: str) -> Parsed | None:
    return Parsed() if _DONE.search(message) else None


CLASSES = (
    LineClass("traceback", LOOP, r"Traceback \(most recent call last\)"),
    LineClass("ignored", CONTEXT, r"Exception ignored in"),
    LineClass(
        "exception", LOOP, r"(Error|Exception|Interrupt|Iteration|Timeout|Expired|NotFound)\b", exception
    ),
    LineClass("terminate", LOOP, r"terminate called"),
    LineClass(
        "crash", LOOP, r"Segmentation fault|SIGSEGV|Bus error \(core|Illegal instruction \(core|SIGILL"
    ),
    LineClass("ais_loader", LOOP, r"AISBatchLoaderError", loader),
    LineClass(
        "retry",
        DATA,
        r"retry(ing)? \(?[0-9]+ ?/ ?[0-9]|attempt [0-9]+ ?(/|of) ?[0-9]",
        retry,
        ignore_case=True,
    ),
    LineClass(
        "connection",
        DATA,
        r"connection (reset|broken|refused|aborted)|broken pipe|timed out|deadline exceeded|"
        r"max retries exceeded|read timeout",
        ignore_case=True,
    ),
    LineClass("storage", DATA, "|".join(_STORAGE_WORDS), storage, ignore_case=True),
    LineClass(
        "step",
        CONTEXT,
        r"iteration +[0-9]+ ?/|step: *[0-9]+ +loss|step=[0-9]+, skipped=|Epoch [0-9]+: |"
        r"step[ :=#]{1,3}[0-9]",
        step,
    ),
    LineClass(
        "activity",
        CONTEXT,
        r"[Cc]heckpoint|[Ee]valuat(ion|ing)\b|[Ff]inished (evaluation|evaluating|validation|"
        r"preprocessing|tokenizing|building)|validation (loss|done|complete|finished)|[Rr]unning "
        r"(the )?(eval|validation)|([Ss]tart|[Bb]egin)(ing|ed|ning)? (the )?(eval|validation)|"
        r"eval (loss|results)|[Pp]reprocess|[Tt]okeniz|[Bb]uilding |[Ss]huffling |[Cc]onverting "
        r"dataset|[Dd]ownloading|[Ss]aving (model|weights|state)|dataset|[Ii]ndexing",
        activity,
    ),
    LineClass(
        "completed",
        CONTEXT,
        r"[Tt]raining (is )?(complete|finished|done)|inished training|Trainer\.fit. stopped|"
        r"exiting program at|after training is done|[Tt]raining run|steps (done|completed)",
        completed,
    ),
)
