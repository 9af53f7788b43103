"""The dresses: every combination of collector, launcher, torch and framework that the corpus writes."""

from tests.diagnose.logs.cases.model import Dress

_ALL = (
    Dress("ranks"),
    Dress("nodes", layout="nodes", prefix="default", framework="megatron"),
    Dress("label", layout="one", prefix="label", launcher="srun", framework="nemo"),
    Dress("ray", layout="one", prefix="ray", launcher="ray", framework="plain"),
    Dress("ray_colour", layout="one", prefix="ray", launcher="ray", framework="plain", colour="esc"),
    Dress("pdsh", layout="one", prefix="pdsh", launcher="deepspeed", era="mid", framework="deepspeed"),
    Dress("cloud", layout="one", prefix="cloud", framework="lightning", stamp=True),
    Dress("colour", layout="nodes", framework="nemo", colour="esc", reverse_names=True),
    Dress("lost_colour", layout="nodes", framework="megatron", colour="lost", doubled=True),
    Dress("wrapped", layout="nodes", framework="lightning", wrapped=True),
    Dress("glued", layout="one", framework="lightning", glued=True),
    Dress("old", era="old", framework="lightning"),
    Dress("old_nodes", layout="nodes", prefix="default", era="old", framework="megatron"),
    Dress("shuffled", layout="one", shuffled=True, framework="titan"),
    Dress("half", era="half", framework="nemo"),
    Dress("half_one", layout="one", prefix="pdsh", era="half", framework="lightning"),
    Dress("mid", layout="nodes", era="mid", framework="deepspeed"),
    Dress("srun_ranks", layout="ranks", launcher="srun", framework="megatron", reverse_names=True),
    Dress(
        "deepspeed_nodes",
        layout="nodes",
        prefix="default",
        launcher="deepspeed",
        era="mid",
        framework="deepspeed",
    ),
    Dress("bare", layout="one", era="old", framework="plain"),
    Dress("bare_colour", layout="nodes", era="old", framework="lightning", colour="lost"),
    Dress("old_colour", layout="nodes", prefix="default", era="old", framework="lightning", colour="lost"),
)

DRESSES: dict[str, Dress] = {dress.name: dress for dress in _ALL}
