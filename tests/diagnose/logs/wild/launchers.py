"""Launchers, schedulers, attempts, several jobs in a folder: which lines belong together."""

from tests.diagnose.logs.wild.lines import at, block, closing, failed, megatron, text, timeout, titan, trace
from tests.diagnose.logs.wild.model import Files, Wild


def torchrun_layout() -> Files:
    """torchrun --log-dir: stdout.log and stderr.log of each rank; the exception is in one stderr.log."""
    files: Files = {}
    for rank in range(4):
        folder = f"none_x1/attempt_0/{rank}"
        files[f"{folder}/stdout.log"] = text(titan(range(1, 30), 0))
        files[f"{folder}/stderr.log"] = (
            text(
                trace(
                    "ZeroDivisionError: float division by zero",
                    2,
                    file="/workspace/loss.py",
                    function="scale",
                )
            )
            if rank == 2
            else b""
        )
    return files


def torchrun_layout_second_node() -> Files:
    """Folders of one node's agent of two: folder 1 is a local rank, and `[rank5]` says which."""
    files: Files = {}
    for local in range(4):
        folder = f"node1/none_x1/attempt_0/{local}"
        files[f"{folder}/stderr.log"] = (
            text(
                trace(
                    "ZeroDivisionError: float division by zero",
                    5,
                    file="/workspace/loss.py",
                    function="scale",
                )
            )
            if local == 1
            else text([f"[rank{4 + local}]: warming up"])
        )
    return files


def elastic_scale_down() -> Files:
    """A node leaves, the agents notice, and go on with fewer ranks to the end: nobody broke."""
    rows = [
        *titan(range(1, 30), 0),
        "INFO:torch.distributed.elastic.agent.server.api:[default] Detected 0 new nodes from "
        "group_rank=0; will restart worker group",
        "W0314 02:02:10.000000 4100 torch/distributed/elastic/agent/server/api.py:895] [default] "
        "Worker group membership changed: 1 node left, restarting worker group",
        *closing(130, range(500, 504)),
        "INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:",
        "  restart_count=0",
        "  group_world_size=1",
        "  global_world_size=4",
        *titan(range(20, 90), 160),
        "Training completed",
    ]
    return {"agent0.log": text(rows)}


def restart_then_fine() -> Files:
    """The first attempt fails on rank 1; the second one runs to the end."""
    rows = [
        *titan(range(1, 30), 0),
        *trace(
            "ConnectionError: could not reach feature store", 1, file="/workspace/features.py", function="get"
        ),
        *closing(100, (500, 502, 503)),
        *failed(101, 1, 1, 501),
        "I0314 02:01:45.000000 4100 torch/distributed/elastic/agent/server/api.py:879] [default] "
        "Worker group FAILED. 2/3 attempts left; will restart worker group",
        *titan(range(20, 90), 160),
        f"[titan] {at(500)} - root - INFO - Training completed",
    ]
    return {"node0.log": text(rows)}


def attempts_swapped() -> Files:
    """attempt_1's failure is another one than attempt_0's: the last counts."""
    files: Files = {}
    for rank in range(4):
        files[f"run/attempt_0/{rank}/stderr.log"] = text(
            titan(range(1, 20), 0),
            trace(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                3,
                file="/workspace/model.py",
            )
            if rank == 3
            else [],
        )
        files[f"run/attempt_1/{rank}/stderr.log"] = text(
            titan(range(1, 40), 200),
            trace("KeyError: 'labels'", 1, file="/workspace/collate.py") if rank == 1 else [],
        )
    return files


def two_jobs_one_folder() -> Files:
    """A folder with yesterday's failed job and today's healthy one, told apart by job id."""
    return {
        "slurm-100.out": text(
            titan(range(1, 30), 0), trace("KeyError: 'labels'", 1, file="/workspace/collate.py")
        ),
        "slurm-101.out": text(
            titan(range(1, 90), 40000), f"[titan] {at(41000)} - root - INFO - Training completed"
        ),
    }


def same_log_twice() -> Files:
    """One log copied under two names: still one event."""
    log = text(
        titan(range(1, 30), 0),
        trace("KeyError: 'labels'", 1, file="/workspace/collate.py"),
        closing(100, (500, 502, 503)),
        failed(101, 1, 1, 501),
        block(101, (1, 1, 1, 501)),
    )
    return {"train.log": log, "copy of train (1).log": log}


def rotated() -> Files:
    """Rank 2's log rotated over three files; the exception is in the newest."""
    files: Files = {f"rank{r}.log": text(titan(range(1, 60), 0)) for r in (0, 1, 3)}
    files["rank2.log.2"] = text(titan(range(1, 20), 0))
    files["rank2.log.1"] = text(titan(range(20, 40), 60))
    files["rank2.log"] = text(
        titan(range(40, 60), 120), trace("KeyError: 'labels'", 2, file="/workspace/collate.py")
    )
    return files


def srun_task_killed() -> Files:
    """srun without labels: tasks 4-7 of a node end by signal 9 after a step timeout of the scheduler."""
    rows = [
        *megatron(range(1, 20), 0),
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        f"slurmstepd: error: *** STEP 88.0 ON gpu-b2 CANCELLED AT {at(200, '%Y-%m-%dT%H:%M:%S')} "
        "DUE TO PREEMPTION ***",
        "srun: error: gpu-b2: tasks 4-7: Killed",
        "srun: error: gpu-a1: tasks 0-3: Terminated",
    ]
    return {"slurm-88.out": text(rows)}


def requeue() -> Files:
    """scontrol requeue by an operator."""
    rows = [
        *megatron(range(1, 20), 0),
        f"slurmstepd: error: *** JOB 88 ON gpu-a1 CANCELLED AT {at(200, '%Y-%m-%dT%H:%M:%S')} DUE "
        "TO JOB REQUEUE ***",
    ]
    return {"slurm-88.out": text(rows)}


def two_nodes_two_blocks() -> Files:
    """Node 1's agent names rank 9, which it closed itself; node 0's names rank 2's exception."""
    a = text(
        titan(range(1, 30), 0),
        trace("KeyError: 'labels'", 2, file="/workspace/collate.py"),
        closing(100, (500, 501, 503)),
        failed(101, 1, 2, 502),
        block(101, (2, 2, 1, 502)),
    )
    b = text(
        titan(range(1, 30), 0),
        closing(131, (600, 602, 603)),
        failed(132, -15, 1, 601),
        block(132, (9, 1, -15, 601), host="gpu-b2"),
    )
    return {"gpu-a1.log": a, "gpu-b2.log": b}


def local_rank_lie() -> Files:
    """Two nodes of four; each agent prints `local_rank: 1`: on the second node that is rank 5."""
    a = text(
        titan(range(1, 30), 0),
        ["[default1]:still fine"],
        timeout(0, 800, 55),
        timeout(1, 800, 55),
        timeout(2, 800, 55),
        timeout(3, 800, 55),
    )
    b = text(
        ["[default0]:[rank4]: loading", "[default1]:[rank5]: loading"],
        closing(150, (600, 602, 603)),
        failed(151, -11, 1, 601),
        block(150, (5, 1, -11, 601), host="gpu-b2"),
    )
    return {"node0.log": a, "node1.log": b}


def spawn_exception() -> Files:
    """torch.multiprocessing.spawn: "Process 3 terminated with the following error"."""
    rows = [
        *titan(range(1, 30), 0),
        *trace(
            "torch.multiprocessing.spawn.ProcessRaisedException: ",
            file="/opt/conda/lib/python3.11/site-packages/torch/multiprocessing/spawn.py",
            function="join",
        ),
        "",
        "-- Process 3 terminated with the following error:",
        *trace("KeyError: 'labels'", file="/workspace/collate.py"),
    ]
    return {"out.txt": text(rows)}


def mpirun_abort() -> Files:
    """Open MPI: rank 6 called abort; the exit code is in a box of dashes."""
    rows = [
        *megatron(range(1, 20), 0),
        *[
            "[gpu-b2:09117] *** Process received signal ***",
            "[gpu-b2:09117] Signal: Segmentation fault (11)",
            "[gpu-b2:09117] Signal code: Address not mapped (1)",
        ],
        "--------------------------------------------------------------------------",
        "mpirun noticed that process rank 6 with PID 9117 on node gpu-b2 exited on signal 11 "
        "(Segmentation fault).",
        "--------------------------------------------------------------------------",
    ]
    return {"mpi.log": text(rows)}


def deepspeed_last_local_rank() -> Files:
    """DeepSpeed's launcher prints the command of the last process that it started, whoever died."""
    rows = [
        f"[{at(n)}] [INFO] [logging.py:128:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-05], "
        "mom=[(0.9, 0.999)]"
        for n in range(10, 90, 10)
    ]
    rows += [
        f"[{at(100)}] [INFO] [launch.py:319:sigkill_handler] Killing subprocess {13260 + r}" for r in range(8)
    ]
    rows += [
        f"[{at(101)}] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'main.py', "
        "'--local_rank=7', '--deepspeed', 'ds.json'] exits with return code = -9"
    ]
    return {"train.log": text(rows)}


def deepspeed_named_cause() -> Files:
    """The same launcher's words, with rank 2's own exception above them: rank 2, not the command's rank 7."""
    rows = [
        f"[{at(n)}] [INFO] [logging.py:128:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-05], "
        "mom=[(0.9, 0.999)]"
        for n in range(10, 90, 10)
    ]
    rows += trace("KeyError: 'input_ids'", 2, file="/workspace/collate.py", function="collate")
    rows += [
        f"[{at(100)}] [INFO] [launch.py:319:sigkill_handler] Killing subprocess {13260 + r}" for r in range(8)
    ]
    rows += [
        f"[{at(101)}] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'main.py', "
        "'--local_rank=7', '--deepspeed', 'ds.json'] exits with return code = 1"
    ]
    return {"train.log": text(rows)}


def ray_actor_died() -> Files:
    """Ray tells that some worker died, by a process id that nothing ties to a rank."""
    rows = [
        f"(TaskRunner pid=4030) step:{n} - global_seqlen/mean:812.1 - actor/loss:0.01" for n in range(1, 30)
    ]
    rows += [
        "(raylet) A worker died or was killed while executing a task by an unexpected system "
        "error. To troubleshoot the problem, check the logs for the dead worker. RayTask ID: "
        "ffffffff12 Worker ID: 293754 Node ID: 55447a Worker IP address: 10.0.0.7 Worker port: "
        "10230 Worker PID: 23943 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
        "unexpectedly exits with a connection error code 2. End of file. There are some potential "
        "root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. "
        "(2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or "
        "other unexpected errors.",
        *trace(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this "
            "task.\n\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n\tactor_id: "
            "5066c2\n\tpid: 23943\n\tname: 07GxnAWorkerDict_0:3\n\tip: 10.0.0.7\nThe actor is dead "
            "because its worker process has died. Worker exit type: SYSTEM_ERROR",
            file="/workspace/main_ppo.py",
        ),
    ]
    return {"job-driver.log": text(rows)}


def ray_memory_monitor() -> Files:
    """Ray's own memory monitor kills a worker: out of host memory, on a node, no rank known."""
    rows = [f"(TaskRunner pid=4030) step:{n} - actor/loss:0.01" for n in range(1, 30)]
    rows += [
        "(raylet, ip=10.0.0.7) [2026-03-14 02:10:00,101 E 2201 2201 (raylet)] "
        "node_manager.cc:3064: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 "
        "Workers crashed due to other reasons at node (ID: 55447a, IP: 10.0.0.7) over the last "
        "time period.",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ]
    return {"job-driver.log": text(rows)}


ANY_DEATH = ("rank_exited", "inconclusive")
INCIDENTS = (
    Wild("torchrun_layout", torchrun_layout, ("software_error",), culprits=(2,)),
    Wild("torchrun_layout_second_node", torchrun_layout_second_node, ("software_error",), culprits=(5,)),
    Wild(
        "elastic_scale_down",
        elastic_scale_down,
        ("healthy", "inconclusive", "external_stop", "node_lost"),
        calm=True,
    ),
    Wild(
        "restart_then_fine",
        restart_then_fine,
        ("healthy", "software_error", "storage_failure", "inconclusive"),
        may_convict=(1,),
    ),
    Wild("attempts_swapped", attempts_swapped, ("software_error", "data_corrupt"), culprits=(1,)),
    Wild(
        "two_jobs_one_folder",
        two_jobs_one_folder,
        ("software_error", "healthy", "inconclusive"),
        may_convict=(1,),
    ),
    Wild("same_log_twice", same_log_twice, ("software_error",), culprits=(1,)),
    Wild("rotated", rotated, ("software_error",), culprits=(2,), expected_ranks=4),
    Wild("srun_task_killed", srun_task_killed, ("external_stop",), calm=True),
    Wild("requeue", requeue, ("external_stop",), calm=True),
    Wild("two_nodes_two_blocks", two_nodes_two_blocks, ("software_error",), culprits=(2,)),
    Wild("local_rank_lie", local_rank_lie, ("rank_exited",), culprits=(5,)),
    Wild("spawn_exception", spawn_exception, ("software_error",), may_convict=(3,)),
    Wild("mpirun_abort", mpirun_abort, ("rank_exited",), may_convict=(6,)),
    Wild("deepspeed_last_local_rank", deepspeed_last_local_rank, ANY_DEATH, calm=False, may_convict=()),
    Wild("deepspeed_named_cause", deepspeed_named_cause, ("software_error", "data_corrupt"), culprits=(2,)),
    Wild("ray_actor_died", ray_actor_died, ("rank_exited", "inconclusive", "host_oom"), may_convict=()),
    Wild("ray_memory_monitor", ray_memory_monitor, ("host_oom",), may_convict=()),
)
