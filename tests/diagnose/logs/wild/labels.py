"""Labels that are no global ranks: machines, stages, coordinates, ranks inside a group."""

from tests.diagnose.logs.wild.lines import closing, failed, megatron, text, timeout, titan, trace
from tests.diagnose.logs.wild.model import Files, Wild


def label_is_node() -> Files:
    """srun --label in front of an agent a node: `2: ` is the third machine, not rank 2."""
    rows = [f"0: {r}" for r in megatron(range(1, 20), 0)]
    rows += [f"{n}: loading weights of the shard" for n in range(4)]
    rows += [
        f"0: gpu-a1:{8000 + r}:{8100 + r} [{r}] NCCL INFO ncclCommInitRankConfig comm 0x55d0{r} "
        f"rank {r} nranks 32 cudaDev {r} nvmlDev {r} busId {1 + r}b000 commId 0x9d3 - Init COMPLETE"
        for r in range(8)
    ]
    rows += [f"2: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"slurm-88.out": text(rows)}


def label_is_node_unstated() -> Files:
    """The same without NCCL's lines: nothing states a world size, and a label may still be a machine."""
    rows = [f"0: {r}" for r in megatron(range(1, 20), 0)]
    rows += [f"{n}: starting 8 workers with torchrun" for n in range(4)]
    rows += [f"2: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"slurm-88.out": text(rows)}


def bracket_is_node() -> Files:
    """A wrapper writes `[node1]: ` before every line: a machine, not a local rank."""
    rows = [f"[node0]: {r}" for r in titan(range(1, 30), 0)]
    rows += [f"[node{n}]: torch 2.6.0 on 8 cards" for n in range(4)]
    rows += [f"[node1]: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"all.log": text(rows)}


def bracket_is_stage() -> Files:
    """`[stage3]: ` is a part of the program; one log, nobody's rank known."""
    rows = titan(range(1, 30), 0)
    rows += [f"[stage{n}]: layers {8 * n}-{8 * n + 7} built" for n in range(4)]
    rows += [f"[stage3]: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"train.log": text(rows)}


def node_rank_files() -> Files:
    """rank_0.log and rank_1.log are the agents' of two nodes of four ranks each."""
    files: Files = {}
    for node in range(2):
        rows = [f"[rank{4 * node + r}]: ready" for r in range(4)] + (
            titan(range(1, 30), 0) if node == 0 else []
        )
        if node == 1:
            rows += [
                "done with warm-up",
                "",
                "",
                "",
                *trace("KeyError: 'labels'", file="/workspace/collate.py"),
            ]
        files[f"rank_{node}.log"] = text(rows)
    return files


def mesh_file_names() -> Files:
    """Files named by coordinates of the mesh: tp_rank_3 is no global rank."""
    files: Files = {}
    for pp in range(2):
        for tp in range(4):
            files[f"logs/pp_rank_{pp}_tp_rank_{tp}.log"] = text(
                titan(range(1, 30), 0),
                trace("KeyError: 'labels'", file="/workspace/collate.py") if (pp, tp) == (1, 3) else [],
            )
    return files


def two_run_folders() -> Files:
    """Two agents in one folder, both with local ranks 0 to 3, and an exception without any prefix in one."""
    files: Files = {}
    for run in ("none_ab12", "none_cd34"):
        for local in range(4):
            rows = titan(range(1, 30), 0) if run == "none_ab12" and local == 0 else ["ready"]
            files[f"{run}/attempt_0/{local}/stderr.log"] = text(
                rows,
                trace("KeyError: 'labels'", file="/workspace/collate.py")
                if (run, local) == ("none_cd34", 1)
                else [],
            )
    return files


def pods_of_one() -> Files:
    """A master and three workers, one card each: worker-1 is rank 2."""
    files: Files = {"train-master-0.log": text(titan(range(1, 30), 0))}
    for n in range(3):
        files[f"train-worker-{n}.log"] = text(
            ["ready"], trace("KeyError: 'labels'", file="/workspace/collate.py") if n == 1 else []
        )
    return files


def two_agents_unlabelled() -> Files:
    """Two agents write into one file, nobody has a prefix: local rank 1 is rank 1 or rank 5."""
    rows = [*titan(range(1, 30), 0), *closing(100, (600, 602, 603)), *failed(101, -11, 1, 601)]
    rows += [r.replace(" 4100 ", " 7200 ") for r in closing(104, (500, 501, 502, 503))]
    return {"slurm-88.out": text(rows)}


def quoted_rank() -> Files:
    """Rank 0's monitor repeats what rank 3 said yesterday; today rank 5 fails."""
    rows = [
        *titan(range(1, 30), 0),
        "monitor: incident of yesterday, for reference: [rank3]: RuntimeError: CUDA error: an "
        "illegal memory access was encountered",
        *titan(range(30, 50), 90),
    ]
    return {"train.log": text(rows, trace("KeyError: 'labels'", 5, file="/workspace/collate.py"))}


def mesh_sisters() -> Files:
    """Sister groups of a mesh share one id: ranks 0-3 wait in 55, and of the other four rank 6 in 57."""
    files: Files = {}
    for rank in (0, 1, 2, 3, 6):
        files[f"rank{rank}.log"] = text(
            titan(range(1, 30), 0),
            timeout(rank, 700, 57 if rank == 6 else 55, group="3(mesh_tp)", group_id=1, group_rank=rank % 4),
        )
    for rank in (4, 5, 7):
        files[f"rank{rank}.log"] = text(titan(range(1, 30), 0))
    return files


def mesh_sisters_sizes() -> Files:
    """Sister groups again, of pipeline stages with layers of different sizes: no mismatch."""
    files: Files = {}
    for rank in (0, 1, 2, 3, 5):
        files[f"rank{rank}.log"] = text(
            titan(range(1, 30), 0),
            timeout(
                rank,
                700,
                55,
                numel=800 if rank == 5 else 1000,
                group="3(mesh_dp)",
                group_id=1,
                group_rank=rank % 4,
            ),
        )
    for rank in (4, 6, 7):
        files[f"rank{rank}.log"] = text(titan(range(1, 30), 0))
    return files


def pipeline_edges() -> Files:
    """The first stage of a pipeline has half as many sends and receives as the inner ones."""
    files: Files = {}
    for rank in range(4):
        files[f"rank{rank}.log"] = text(
            megatron(range(1, 20), 0),
            timeout(
                rank,
                800,
                40 if rank == 0 else 80,
                "SEND" if rank == 0 else "RECV",
                4_194_304,
                group="21(PIPELINE_MODEL_PARALLEL_GROUP)",
                group_id=4,
            ),
        )
    return files


def barrier_in_group() -> Files:
    """A monitored barrier of ranks 4-7: its "Rank 2" is rank 6. In the group of all only rank 0 reports."""
    files: Files = {f"rank{r}.log": text(titan(range(1, 9), 0)) for r in range(8)}
    said = "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 30000 ms"
    files["rank4.log"] = text(titan(range(1, 9), 0), trace(said, 4))
    return files


def desync_in_group() -> Files:
    """A desync report of the group of ranks 4-7, in rank 4's log: its rank 2 is rank 6."""
    rows = timeout(4, 700, 17, group="3(TENSOR_MODEL_PARALLEL_GROUP)", group_id=1, group_rank=0)
    rows += ["\t - [2] finished collective #16, but didn't join collective #17 (count from 1)"]
    rows += ["\t - [0, 1, 3] joined but didn't finish collective #17 (count from 1)"]
    return {"rank4.log": text(titan(range(1, 9), 0), rows), "rank2.log": text(titan(range(1, 9), 0))}


def detail_in_group() -> Files:
    """The debug wrapper compares ranks 4-7 by their ranks in the group: the odd one, 2, is rank 6."""

    def mark(op: str, shape: int) -> str:
        return (
            f"CollectiveFingerPrint(SequenceNumber=17, OpType={op}, TensorShape=[{shape}], "
            "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, "
            "layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), "
            "memory_format=(nullopt)))"
        )

    usual, odd = mark("ALLREDUCE", 4096), mark("ALLGATHER", 64)
    files: Files = {f"rank{r}.log": text(titan(range(1, 9), 0)) for r in range(4)}
    for inside in range(4):
        mine, other, its = (odd, 0, usual) if inside == 2 else (usual, 2, odd)
        said = (
            "RuntimeError: Detected mismatch between collectives on ranks. "
            f"Rank {inside} is running collective: {mine}, but Rank {other} is running collective: {its}."
        )
        files[f"rank{4 + inside}.log"] = text(titan(range(1, 9), 0), trace(said, 4 + inside))
    return files


SOFT = ("software_error", "inconclusive")
INCIDENTS = (
    Wild("label_is_node", label_is_node, SOFT),
    Wild("label_is_node_unstated", label_is_node_unstated, SOFT),
    Wild("bracket_is_node", bracket_is_node, SOFT),
    Wild("bracket_is_stage", bracket_is_stage, SOFT),
    Wild("node_rank_files", node_rank_files, SOFT),
    Wild("mesh_file_names", mesh_file_names, SOFT, may_convict=(7,)),
    Wild("two_run_folders", two_run_folders, SOFT),
    Wild("pods_of_one", pods_of_one, SOFT, may_convict=(2,)),
    Wild("two_agents_unlabelled", two_agents_unlabelled, ("rank_exited", "inconclusive")),
    Wild("quoted_rank", quoted_rank, ("software_error",), culprits=(5,)),
    Wild("mesh_sisters", mesh_sisters, ("inconclusive", "fabric_stalled")),
    Wild("mesh_sisters_sizes", mesh_sisters_sizes, ("inconclusive", "fabric_stalled")),
    Wild("pipeline_edges", pipeline_edges, ("inconclusive", "p2p_mismatch")),
    Wild(
        "barrier_in_group",
        barrier_in_group,
        ("rank_stalled", "inconclusive"),
        may_convict=(6,),
        never=(2,),
        world=8,
    ),
    Wild(
        "desync_in_group",
        desync_in_group,
        ("rank_stalled", "inconclusive"),
        may_convict=(6,),
        never=(2,),
        world=8,
    ),
    Wild(
        "detail_in_group",
        detail_in_group,
        ("collective_type_mismatch", "inconclusive"),
        may_convict=(6,),
        never=(2,),
        not_said=("nothing in",),
        world=8,
    ),
)
