"""Reading the job from the beginnings of its logs: what is stated, by which line, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.diagnose.logs.heads import JobHead, read_heads
from harness.diagnose.logs.heads_world import pci_address


def head(*files: str) -> JobHead:
    """Each text is a file: ``node-0.err``, ``node-1.err``, ..."""
    return read_heads(
        {f"node-{i}.err": list(enumerate(text.strip("\n").split("\n"), 1)) for i, text in enumerate(files)}
    )


def nccl(host: str, rank: int, nranks: int, device: int = 0, bus: str = "3b000", pid: int = 100) -> str:
    """A line of NCCL's about a rank of one communicator."""
    return (
        f"{host}:{pid}:{pid + 9} [{device}] NCCL INFO comm 0x7f30 rank {rank} nranks {nranks} "
        f"cudaDev {device} nvmlDev {device} busId {bus} commId 0x9a - Init COMPLETE"
    )


PREFIXES = [
    "",
    "[rank3]: ",
    "11: ",
    "node-a: ",
    "(Worker pid=77, ip=10.0.0.1) ",
    "[default3]:[rank3]:",
    "\x1b[36m",
    "[31m",
    "2026-08-08T03:12:44.123456Z job.node-a [stderr] ",
    "Epoch 0:   0%|          | 0/10 [00:00<?, ?it/s]",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "line",
    [
        "Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/16",
        "All distributed processes registered. Starting with 16 processes",
        "using world size: 16, data-parallel size: 2, tensor-model-parallel size: 8",
        "  world_size ...................................... 16",
        "init: rank=3 world_size=16 backend=nccl",
        "Rank 3, world size: 16",
        "WORLD_SIZE=16",
        "{'rank': 3, 'world_size': 16}",
        "[2026-08-08 03:12:44,135] [INFO] [launch.py:180:main] dist_world_size=16",
        "  global_world_sizes=[16, 16, 16, 16, 16, 16, 16, 16]",
        "torchrun --nproc_per_node=8 --nnodes=2 train.py",
        "torchrun --nproc-per-node 8 --nnodes 2 train.py",
        "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 4]",
        "Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=8, etp=1",
        "Added key: store_based_barrier_key:1 (world_size=16, worker_count=3)",
    ],
)
def test_the_world_is_read_as_stated(line: str, prefix: str) -> None:
    """Whatever stands before it, with the line that states it."""
    found = head(f"noise\n{prefix}{line}").world_size

    assert found.value == 16
    assert (found.stated[0].file, found.stated[0].line) == ("node-0.err", 2)


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node=8 train.py",
        "  nproc_per_node   : 8",
        "LOCAL_WORLD_SIZE=8",
        "local_world_size: 8",
        "data parallel world size: 8",
        "data_parallel_world_size=8",
        "dp_world_size=8",
        "tensor model parallel world size 8",
        "group_world_size=8",
        "number of data parallel groups: 8",
        "global batch size 16, micro_batch_size=8",
        "rank 3 batch size: 8",
        "[config.py:964:print]   world_size ................... 8",
        "(EngineCore pid=7) INFO vllm: world_size=8 rank=0 local_rank=0 distributed_init_method=tcp://x",
        "Added key: store_based_barrier_key:4 (world_size=8, worker_count=3)",
        "checkpoint was saved with world size 8",
        "torchrun --nnodes=1:4 --nproc_per_node=8 train.py",
        "torchrun --nnodes=$NNODES --nproc_per_node=8 train.py",
        "took world_size=8.5 units",
        nccl("a", 3, 8) + "\n" + nccl("b", 3, 8, bus="5e000"),
    ],
)
def test_other_sizes_are_not_the_world(line: str) -> None:
    """A node's ranks, a group's, a batch's, an engine's, an older checkpoint's, an elastic range."""
    found = head(line)

    assert found.world_size.value is None
    assert not found.world_size.stated


def test_torchrun_configuration_gives_nodes_and_world() -> None:
    """Least and most nodes equal: a launch of known size."""
    config = "  min_nodes        : 2\n  max_nodes        : 2\n  nproc_per_node   : 8\n"

    found = head(config)

    assert (found.nodes.value, found.ranks_per_node.value, found.world_size.value) == (2, 8, 16)


def test_an_elastic_configuration_gives_no_world() -> None:
    """Between two and four nodes nobody knows."""
    found = head("  min_nodes        : 2\n  max_nodes        : 4\n  nproc_per_node   : 8\n")

    assert found.nodes.value is None
    assert found.world_size.value is None


def test_slurm_tasks_are_ranks_unless_they_are_agents() -> None:
    """As many tasks as nodes, or a launcher of its own: then a task starts ranks."""
    assert head("SLURM_NTASKS=16\nSLURM_NNODES=2").world_size.value == 16
    assert head("SLURM_NTASKS=2\nSLURM_NNODES=2").world_size.value is None
    assert head("SLURM_NTASKS=2\ntorchrun --nproc_per_node=8 train.py").world_size.value is None


def test_only_implied_sizes_are_least_sizes() -> None:
    """The largest communicator seen is a lower bound, and is said to be one."""
    found = head("\n".join(nccl("node-a", rank, 8, rank, f"{rank + 1}b000") for rank in range(8)))

    assert found.world_size.value == 8
    assert found.world_is_least
    assert found.hosts == {}


def test_two_worlds_are_a_contradiction() -> None:
    """Two files disagree: no value, and both lines to look at."""
    found = head(
        "using world size: 16, data-parallel size: 2", "x\nusing world size: 32, data-parallel size: 4"
    )

    assert found.world_size.value is None
    assert found.world_size.disputed
    assert {(s.value, s.file, s.line) for s in found.world_size.stated} == {
        (16, "node-0.err", 1),
        (32, "node-1.err", 2),
    }


def test_a_launch_that_disagrees_is_a_contradiction() -> None:
    """The launcher's product against the program's word."""
    found = head("torchrun --nproc_per_node=8 --nnodes=4 train.py\nGLOBAL_RANK: 3, MEMBER: 4/16")

    assert found.world_size.disputed
    assert {s.value for s in found.world_size.stated} == {16, 32}


def test_a_communicator_larger_than_the_world_is_a_contradiction() -> None:
    """There is no such communicator."""
    found = head("GLOBAL_RANK: 3, MEMBER: 4/16\n" + nccl("node-a", 3, 64))

    assert found.world_size.disputed


def test_a_restart_may_change_the_world() -> None:
    """A later statement in the same file replaces the earlier one."""
    found = head("GLOBAL_RANK: 3, MEMBER: 4/16\nlater\nGLOBAL_RANK: 3, MEMBER: 4/8")

    assert found.world_size.value == 8
    assert found.world_size.stated[0].line == 3


def test_ranks_have_places_where_the_communicator_is_the_world() -> None:
    """Ranks of smaller communicators count from 0 on every host: they place nobody."""
    world = [nccl(f"node-{rank // 8}", rank, 16, rank % 8, f"{rank % 8 + 1}a000") for rank in range(16)]
    part = [nccl("node-1", rank, 8, rank, f"{rank + 1}a000") for rank in range(8)]

    found = head("\n".join(["GLOBAL_RANK: 0, MEMBER: 1/16", *part, *world, *part]))

    assert {rank: stated.value for rank, stated in found.hosts.items()} == {
        rank: f"node-{rank // 8}" for rank in range(16)
    }
    assert found.pci[9].value == "0000:2a:00.0"
    assert found.pci[9].line == 1 + 8 + 10
    assert found.nodes.value == 2


def test_a_small_communicator_places_nobody() -> None:
    """Nor does it say which global rank a process is; its host, device and address are still worth having."""
    found = head("GLOBAL_RANK: 0, MEMBER: 1/16\n" + nccl("node-1", 3, 8, 3, "4a000", 77))

    assert found.hosts == {}
    (place,) = found.places
    assert (place.host, place.pid, place.device, place.pci, place.rank) == (
        "node-1",
        77,
        3,
        "0000:4a:00.0",
        None,
    )


def test_a_rank_with_two_places_has_none() -> None:
    """Two files that place a rank differently: an XID on either card must not name it."""
    said = "GLOBAL_RANK: 0, MEMBER: 1/2\n"

    found = head(said + nccl("node-a", 1, 2), said + nccl("node-b", 1, 2))

    assert found.hosts == {}
    assert [place.rank for place in found.places] == [None, None]


@pytest.mark.parametrize(
    ("bus", "address"),
    [
        ("3b000", "0000:3b:00.0"),
        ("e7000", "0000:e7:00.0"),
        ("100000", "0001:00:00.0"),
        ("97010", "0000:97:01.0"),
    ],
)
def test_bus_ids_are_written_as_the_kernel_does(bus: str, address: str) -> None:
    """So that an XID's address can be compared."""
    assert pci_address(bus) == address


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (
            "[NeMo I 2026-08-08 03:12:44 exp_manager:395] go\nmegatron.core\nlightning.pytorch\ntorchrun",
            "NeMo",
        ),
        ("GPU: lightning.pytorch\ntorchrun", "Lightning"),
        ("using world size: 16, data-parallel size: 2\ntorchrun", "Megatron"),
        ("[rank0]:[titan] 2026-08-08 03:12:44 - root - INFO - go\nNCCL version 2.21.5", "torchtitan"),
        ("python -m verl.trainer.main_ppo\n(WorkerDict pid=7) x\nraylet", "verl"),
        ("(RayTrainWorker pid=7, ip=10.0.0.1) torch.distributed", "Ray"),
        ("DeepSpeed info: version=0.14\ntorch.distributed", "DeepSpeed"),
        ("[real_accelerator.py:110:get_accelerator] Setting ds_accelerator to cuda\ntorchrun x", "torch"),
        ("node-a:1:2 [0] NCCL INFO Bootstrap", "torch"),
        ("hello", None),
    ],
)
def test_the_most_specific_framework_wins(text: str, framework: str | None) -> None:
    """NeMo runs on Lightning and Megatron, verl on Ray; an import is no statement."""
    assert head(text).framework.value == framework


def test_all_frameworks_are_kept() -> None:
    """Megatron inside NeMo synchronises in its own places."""
    found = head("[NeMo W 2026-08-08 x]\nfrom megatron.core import y")

    assert [stated.value for stated in found.frameworks] == ["NeMo", "Megatron"]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("Restoring states from the checkpoint path at /ckpt/last.ckpt", "/ckpt/last.ckpt"),
        ("Restored all states from the checkpoint at /ckpt/last.ckpt", "/ckpt/last.ckpt"),
        (" loading checkpoint from /ckpt/run at iteration 1000", "/ckpt/run"),
        ("  successfully loaded checkpoint from /ckpt/run [ t 0/1, p 1/1 ] at iteration 1000", "/ckpt/run"),
        ("Loading the checkpoint from outputs/checkpoint/step-1000.", "outputs/checkpoint/step-1000"),
        ("Resuming from checkpoint: s3://bucket/run/step_1000", "s3://bucket/run/step_1000"),
        ("Load from checkpoint folder: /ckpt/global_step_100", "/ckpt/global_step_100"),
        ("resume_from_checkpoint: None", None),
        ("resume_from_checkpoint=True", None),
        ("WARNING: could not find the metadata file /ckpt, loading checkpoint from scratch", None),
        ("Saving checkpoint at step 1000 to /ckpt/run", None),
    ],
)
def test_what_it_resumed_from(line: str, value: str | None) -> None:
    """The path as it stands; what was not found or is only saved is no resume."""
    found = head(line)

    assert found.resumed_from.value == value
    assert found.resumed_step.value in ((1000,) if "iteration" in line else (None,))


def test_the_step_it_resumed_at() -> None:
    """Without a path too."""
    assert head("Training starts at step 1371.").resumed_step.value == 1371
    assert head("Continuing training from global step 500").resumed_step.value == 500


def test_the_layout_of_groups() -> None:
    """Axes by name, from a sentence, an argument dump or a mesh."""
    sentence = "using world size: 64, data-parallel size: 2, context-parallel size: 1, "
    sentence += "tensor-model-parallel size: 8, pipeline-model-parallel size: 4"
    dump = "  expert_model_parallel_size ...... 8\n  expert_tensor_parallel_size ..... 1"
    mesh = "Building 3-D device mesh with ['pp', 'dp_shard', 'tp'], [2, 4, 8]"

    said, meshed = head(f"{sentence}\n{dump}").layout, head(mesh).layout

    assert {axis: fact.value for axis, fact in said.items()} == {
        "data": 2,
        "context": 1,
        "tensor": 8,
        "pipeline": 4,
        "expert": 8,
    }
    assert {axis: fact.value for axis, fact in meshed.items()} == {"pipeline": 2, "data": 4, "tensor": 8}


@pytest.mark.parametrize(
    ("line", "purpose"),
    [
        ("python pretrain_gpt.py --lr 1e-4\n  finetune ............. False", "training"),
        ("torchrun train.py", "training"),
        ("python finetune.py", "fine-tuning"),
        ("  finetune ............................... True\ntraining ...", "fine-tuning"),
        ("python -m vllm.entrypoints.openai.api_server", "inference"),
        ("hello", None),
    ],
)
def test_what_the_job_does(line: str, purpose: str | None) -> None:
    """A switch that is off says nothing."""
    assert head(line).purpose.value == purpose


@pytest.mark.parametrize(
    ("line", "raw"),
    [
        ("2026-08-08T03:12:44.5Z x", "2026-08-08T03:12:44.5Z"),
        ("[rank0]:[2026-08-08 03:12:44,123] x", "2026-08-08 03:12:44,123"),
        ("[rank3]:[E1129 20:10:00.123456789 ProcessGroupNCCL.cpp:629]", "E1129 20:10:00.123456789"),
        ("[Sun Nov 29 20:10:00 2026] x", "Sun Nov 29 20:10:00 2026"),
        ("3: 20:10:00.5 hello", "20:10:00.5"),
        ("100%|####| 5/5 [00:00:09<00:00:30, 1.2it/s]", None),
    ],
)
def test_the_first_time_is_kept_as_written(line: str, raw: str | None) -> None:
    """A later one in the same file is not; a progress bar shows durations."""
    found = head(f"no time\n{line}\n2027-01-01 00:00:00").started

    assert found[0].value == (raw or "2027-01-01 00:00:00")
    assert (found[0].line, len(found)) == (2 if raw else 3, 1)


def test_data_sources_without_secrets() -> None:
    """Where data is read from; passwords and signatures go nowhere."""
    text = (
        "train manifest s3://key:secret@bucket/train/a.tar?X-Signature=abc\nais://corpus/shard-1.tar,\n"
        "dataset at /lustre/team/data/x\nFile /lustre/env/site-packages/data/x.py\nAIS_ENDPOINT=https://ais:51080"
    )

    found = head(text)

    assert [stated.value for stated in found.sources] == [
        "s3://bucket/train/a.tar",
        "ais://corpus/shard-1.tar",
        "/lustre/team/data/x",
        "https://ais:51080",
    ]
    assert "secret" not in repr(found)
    assert "abc" not in repr(found)


def test_versions_and_nodes_that_differ() -> None:
    """Two versions of one library in one job are worth a line each."""
    a = "NCCL version 2.21.5+cuda12.4\nPyTorch version: 2.5.1+cu124"
    b = "NCCL version 2.20.5+cuda12.4\ntorch==2.5.1+cu124"

    found = head(a, b).versions

    assert found["torch"].value == "2.5.1+cu124"
    assert found["CUDA"].value == "12.4"
    assert found["NCCL"].disputed
    assert [stated.value for stated in found["NCCL"].stated] == ["2.21.5", "2.20.5"]


def test_nothing_comes_of_nothing() -> None:
    """No files, empty files."""
    assert read_heads({}) == JobHead()
    assert read_heads({"a": []}) == JobHead()


@pytest.mark.parametrize(
    "line",
    [
        "a" * 100_000,
        "world_size" * 10_000,
        "world size " * 10_000,
        "world_size " + "." * 100_000,
        ("a-" * 2000 + ":1:1 [0] NCCL INFO ") * 10 + " nranks ",
        "loading checkpoint " * 10_000,
        "s3://" * 10_000,
        "/lustre/data" * 10_000,
        "Building device mesh with parallelism: " + "a=1" * 10_000,
        "finetune" + " ." * 50_000 + "True",
        "://" * 50_000 + "?" * 50_000,
        " nranks NCCL INFO rank 1 " * 4000,
    ],
)
def test_hostile_lines_are_cut(line: str) -> None:
    """Endless lines give no world."""
    assert read_heads({"a": [(1, line)] * 20}).world_size.value is None


@given(
    st.lists(
        st.text(max_size=60) | st.sampled_from(["world_size=", "nranks 8", "MEMBER: 4/", "∞ world size: ²"])
    )
)
def test_no_text_is_an_error(lines: list[str]) -> None:
    """Whatever stands in a file is read or passed over; statements cite lines that exist."""
    found = read_heads({"a": list(enumerate(lines, 1))})

    for stated in found.world_size.stated:
        assert str(stated.value) in lines[stated.line - 1]
