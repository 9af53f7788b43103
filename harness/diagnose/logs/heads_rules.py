"""What lines at the beginning of a log state about its job: one pattern a wording."""

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Rule:
    """One wording. `needle` stands in every line that `pattern` fits, in lower case: it is cheap to look for.

    The value is the pattern's first group. Lines that fit `unless` speak of something else.
    """

    key: str
    needle: str
    pattern: str
    unless: str | None = None

    def search(self, text: str) -> re.Match[str] | None:
        """Where a line states it."""
        found = self._pattern.search(text)
        return None if found and self._unless is not None and self._unless.search(text) else found

    # Compiled when a needle was seen: most jobs have few of these wordings.
    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)

    @cached_property
    def _unless(self) -> re.Pattern[str] | None:
        return re.compile(self.unless, re.IGNORECASE) if self.unless else None


_NUMBER = r"(\d{1,7})(?!\w|[.:]\d)"
_IS = r"['\"]?\s{0,16}[=:]?\s{0,3}"
_DOTS = r"\s{0,3}\.{3,80}\s{0,3}"
_FLAG = r"(?:=|\s{1,3})"

_OTHER_WORLDS = (
    r"checkpoint|\bsaved\b|reshard|vllm|sglang|distributed_init_method|store_based_barrier_key:(?!1\b)"
)
"""A world that was, an inference engine's own, a later group's."""
_WORLD = (
    r"(?<![\w\-.])(?<!parallel )(?<!parallel-)(?<!local )(?<!group )(?<!role )(?<!data )(?<!model )"
    r"(?<!dp )(?<!tp )(?<!pp )(?<!ep )(?<!cp )(?<!node )(?<!replica )(?<!shard )world[ _]size"
)

WORLD_RULES = (
    Rule("world", "using world size", rf"using world size{_IS}{_NUMBER}"),
    Rule("world", "starting with", rf"distributed processes registered\. Starting with {_NUMBER} processes"),
    Rule("world", "member", r"GLOBAL_RANK: \d{1,7}, MEMBER: \d{1,7}/(\d{1,7})\b"),
    Rule("world", "dist_world_size", rf"\bdist_world_size={_NUMBER}"),
    Rule("world", "global_world_size", r"\bglobal_world_sizes?=\[?(\d{1,7})(?![\w.])"),
    # DeepSpeed prints its data-parallel size under this name.
    Rule("world", "world_size", rf"(?<![\w\-])world_size{_DOTS}{_NUMBER}", r"config\.py:\d+:print"),
    Rule("world.generic", "world", rf"{_WORLD}{_IS}\(?{_NUMBER}", _OTHER_WORLDS),
    Rule("world.tasks", "slurm_ntasks", rf"\bSLURM_NTASKS{_IS}{_NUMBER}"),
    Rule("nodes", "nnodes", rf"--nnodes{_FLAG}{_NUMBER}"),
    Rule("nodes", "nnodes", rf"(?<![\w\-])nnodes{_IS}{_NUMBER}"),
    Rule("nodes", "slurm_nnodes", rf"\bSLURM_NNODES{_IS}{_NUMBER}"),
    Rule("nodes", "slurm_job_num_nodes", rf"\bSLURM_JOB_NUM_NODES{_IS}{_NUMBER}"),
    Rule("nodes", "num_nodes", rf"(?<![\w\-])(?:trainer\.)?num_nodes{_IS}{_NUMBER}"),
    Rule("nodes", "group_world_size", rf"(?<![\w\-])group_world_size={_NUMBER}"),
    Rule("nodes.min", "min_nodes", rf"(?<![\w\-])min_nodes{_IS}{_NUMBER}"),
    Rule("nodes.max", "max_nodes", rf"(?<![\w\-])max_nodes{_IS}{_NUMBER}"),
    Rule("per_node", "nproc", rf"--nproc[-_]per[-_]node{_FLAG}{_NUMBER}"),
    Rule("per_node", "nproc", rf"(?<![\w\-])nproc_per_node{_IS}{_NUMBER}"),
    Rule("per_node", "num_local_procs", rf"\bnum_local_procs={_NUMBER}"),
    Rule("per_node", "local_world_size", rf"\bLOCAL_WORLD_SIZE{_IS}{_NUMBER}"),
    Rule("per_node", "slurm_ntasks_per_node", rf"\bSLURM_NTASKS_PER_NODE{_IS}{_NUMBER}"),
)


def _layout(axis: str, names: str) -> Rule:
    name = rf"(?:(?<![\w\-])|--){names}[-_ ](?:size|degree)"
    return Rule(axis, "parallel", rf"{name}(?:{_DOTS}|{_IS}){_NUMBER}", r"vllm|sglang|LLM engine")


LAYOUT_RULES = (
    _layout("tensor", r"tensor[-_](?:model[-_])?parallel"),
    _layout("pipeline", r"pipeline[-_](?:model[-_])?parallel"),
    _layout("context", r"context[-_]parallel"),
    _layout("expert", r"expert[-_](?:model[-_])?parallel"),
    _layout("data", r"data[-_]parallel"),
)

AXES = ("tensor", "pipeline", "context", "expert", "data")

MESH = re.compile(r"Building \d-D device mesh with \[([^\]]{1,200})\], \[([\d, ]{1,100})\]")
MESH_BY_NAME = re.compile(r"Building device mesh with parallelism: ((?:\w{1,20}=\d{1,7}(?:, )?){1,12})")
MESH_AXES = {
    "pp": "pipeline",
    "dp": "data",
    "dp_replicate": "data",
    "dp_shard": "data",
    "cp": "context",
    "tp": "tensor",
}
"""torchtitan's names; `dp_replicate` times `dp_shard` is `data`."""

_PATH = r"['\"]?([^\s'\",;\]]{2,300}?)['\"]?"
_PATH_ENDS = r"(?=[\s'\",;\]]|\.?$)"
_NONE = r"\b(?:none|null|false|no checkpoints?|not found|could not find|from scratch)\b"

RESUME_RULES = (
    Rule(
        "resumed",
        "states from the checkpoint",
        rf"states from the checkpoint(?: path)? at {_PATH}{_PATH_ENDS}",
    ),
    Rule("resumed", "loaded checkpoint from", rf"loaded checkpoint from\s{{1,3}}{_PATH}{_PATH_ENDS}", _NONE),
    Rule(
        "resumed",
        "loading",
        rf"\bloading (?:distributed |the )?checkpoint from\s{{1,3}}{_PATH}{_PATH_ENDS}",
        _NONE,
    ),
    Rule(
        "resumed",
        "resum",
        rf"\bResum(?:e|ing) (?:training )?from (?:the )?(?:checkpoint\b ?)?(?:at )?:?\s?"
        rf"{_PATH}{_PATH_ENDS}",
        _NONE,
    ),
    Rule("resumed", "load from checkpoint", rf"Load from checkpoint folder: {_PATH}{_PATH_ENDS}", _NONE),
    Rule("resumed", "resume_from", rf"\bresume_from(?:_checkpoint|_path)?{_IS}{_PATH}{_PATH_ENDS}", _NONE),
    Rule(
        "resumed.step",
        "checkpoint",
        rf"\bload(?:ed|ing) (?:distributed |the )?checkpoint\b.{{0,400}}? at (?:iteration|step) {_NUMBER}",
        _NONE,
    ),
    Rule(
        "resumed.step", "global step", rf"(?:Continuing training from|Setting) global step(?: to)? {_NUMBER}"
    ),
    Rule(
        "resumed.step",
        "resum",
        rf"\bResum\w{{1,3}} (?:training )?(?:from|at) (?:global )?(?:step|iteration) {_NUMBER}",
    ),
    Rule("resumed.step", "training starts at", r"Training starts at step (\d{1,9})"),
)

VERSIONS = ("torch", "NCCL", "CUDA")

VERSION_RULES = (
    Rule("version.NCCL", "nccl", r"\bNCCL[ _]version['\"]?[ :=]{1,3}v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"),
    Rule("version.CUDA", "nccl version", r"\bNCCL version [\d.]{3,12}\+cuda(\d{1,2}\.\d{1,2})"),
    Rule("version.CUDA", "cuda used to build", r"CUDA used to build PyTorch: (\d{1,2}\.\d{1,2})"),
    Rule("version.CUDA", "torch cuda version", r"torch cuda version[ .:=]{1,80}(\d{1,2}\.\d{1,2})"),
    Rule(
        "version.torch",
        "torch",
        r"\b(?:py)?torch(?:==|[ _]version['\"]?[ .:=(GPU?)]{1,80})v?'?(\d\.\d{1,2}[\w.+]{0,30})",
    ),
)

FRAMEWORKS = ("verl", "NeMo", "torchtitan", "Megatron", "Lightning", "DeepSpeed", "Ray", "torch")
"""The most specific first: what stands later may run inside what stands before."""

FRAMEWORK_RULES = (
    Rule("verl", "verl", r"(\bverl[./](?:trainer|workers|utils|single_controller)\b)"),
    Rule("verl", "pid=", r"(\((?:WorkerDict|TaskRunner|main_task) pid=\d)"),
    Rule("NeMo", "nemo", r"(\[NeMo [IWE] \d|\bnemo[./](?:core|collections|lightning|utils)\b|\bnemo_run\b)"),
    Rule("torchtitan", "titan", r"(\[titan\]|\btorchtitan\b)"),
    Rule("Megatron", "megatron", r"(\bmegatron[./](?:core|training|legacy|arguments|initialize)\b)"),
    Rule("Megatron", "using world size", r"(using world size: \d{1,7}, data-parallel size)"),
    Rule("Megatron", "consumed samples", r"(\biteration\s{1,12}\d{1,9}/\s{0,12}\d{1,9} \| consumed samples)"),
    Rule("Lightning", "lightning", r"(\b(?:pytorch_lightning|lightning[./](?:pytorch|fabric))\b)"),
    Rule("Lightning", "global_rank", r"(Initializing distributed: GLOBAL_RANK: \d)"),
    Rule("Lightning", "local_rank", r"(\bLOCAL_RANK: \d{1,4} - CUDA_VISIBLE_DEVICES)"),
    # "Setting ds_accelerator" only says that the package was imported, by whomever.
    Rule(
        "DeepSpeed",
        "deepspeed",
        r"(DeepSpeed info: version|\bdeepspeed[./](?:launcher|runtime)\b|DeepSpeedEngine)",
    ),
    Rule("DeepSpeed", "dist_world_size", r"(\[launch\.py:\d+:main\] dist_world_size)"),
    Rule("Ray", "pid=", r"(\(\w{1,60} pid=\d{1,8}(?:, ip=[\w.:]{1,60})?\))"),
    Rule(
        "Ray",
        "ray",
        r"(Started a local Ray instance|Connected to Ray cluster|\braylet\b|\bray[./](?:train|_private)\b)",
    ),
    Rule("torch", "torch", r"(\btorchrun\b|\btorch[./]distributed\b)"),
    Rule("torch", "nccl", r"(\bNCCL (?:INFO|WARN|version)\b|ProcessGroupNCCL)"),
)

_OFF = r"(?!['\"]?[\s.:=]{0,80}(?:False|None|null|0\b))"
PURPOSES = ("fine-tuning", "training", "inference")
"""A job that trains may well generate too; one that tunes trains."""

PURPOSE_RULES = (
    Rule("fine-tuning", "tun", rf"(\bfine[-_ ]?tun(?:e|ing)\b){_OFF}"),
    Rule("fine-tuning", "sft", r"(\bSFT(?:Trainer)?\b|[_/]sft[_./])"),
    Rule("fine-tuning", "main_ppo", r"(\bmain_ppo\b)"),
    Rule("fine-tuning", "potrainer", r"(\b(?:GRPO|DPO|PPO)Trainer\b)"),
    Rule(
        "training",
        "train",
        r"(\bpre-?train(?:ing)?\b|\bpretrain_\w{1,40}\.py|\bTraining starts at step\b|"
        r"\btrainer\.fit\b|\btrain\w{0,30}\.py\b|before the start of training step|\*{5} Running training)",
    ),
    Rule("training", "consumed samples", r"(\biteration\s{1,12}\d{1,9}/\s{0,12}\d{1,9} \| consumed samples)"),
    Rule("inference", "infer", r"(\b(?:running|starting) inference\b|\binference\w{0,30}\.py\b)"),
    Rule("inference", "server", r"(\bvllm serve\b|\bapi_server\b|\bsglang\.launch_server\b)"),
    Rule("inference", "trainer.", r"(\btrainer\.(?:predict|test)\b)"),
)

ALL_RULES = (
    *WORLD_RULES,
    *LAYOUT_RULES,
    *RESUME_RULES,
    *VERSION_RULES,
    *FRAMEWORK_RULES,
    *PURPOSE_RULES,
)

STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d"
    r"|\b[IWEFDC]\d{4} \d\d:\d\d:\d\d\.\d{1,9}"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d(?: \w{3,5})? \d{4}"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]?\d \d\d:\d\d:\d\d"
)
CLOCK = re.compile(r"(?<![\d:<])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?![\d:<])")
"""A time of day. Deep in a line it may as well be a duration, and a progress bar has them too."""

SOURCE = re.compile(r"\b(?:s3|s3a|gs|ais|az|abfss?|hdfs|oss|swift|msc)://[^\s'\"<>,;\])]{2,300}")
DATA_PATH = re.compile(
    r"(?<![\w/.])/(?:lustre|nfs|gpfs|fsx|beegfs|weka|mnt|shared|data|datasets?)/[^\s'\"<>,;:\])]{2,300}"
)
ABOUT_DATA = re.compile(r"data|manifest|shard|corpus|blend|\.tar\b|\.parquet|\.jsonl", re.IGNORECASE)
ENDPOINT = re.compile(r"\bAIS_ENDPOINT['\"]?[=:]\s?['\"]?(https?://[^\s'\"]{3,200})")
CREDENTIALS = re.compile(r"(?<=://)[^\s/@]{1,200}@|\?[^\s'\"]{1,2000}")
"""User and password of an address, and the query of a signed one."""

ANSI = re.compile(r"\x1b?\[[0-9;]{1,12}m|\x1b\[[0-9;?]{0,12}[A-Za-z]")

NCCL_RANK = re.compile(
    r"(?<![\w.\-])(?P<host>[\w.\-]{1,253}):(?P<pid>\d{1,8}):\d{1,8} \[\d{1,3}\] NCCL INFO .{0,300}?"
    r"\brank (?P<rank>\d{1,7}) nranks (?P<nranks>\d{1,7}) cudaDev (?P<device>\d{1,3})"
    r"(?: nvmlDev \d{1,3})? busId (?P<bus>[0-9a-fA-F]{1,12})"
)
