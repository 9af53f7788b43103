"""Banners and step lines of the training frameworks."""

from tests.diagnose.logs.cases import clock


def header(framework: str, world: int, t: float) -> list[str]:
    """What rank 0 says of the job before it trains."""
    if framework == "megatron":
        return [
            f"using world size: {world}, data-parallel size: {world}, context-parallel size: 1, "
            "tensor-model-parallel size: 1, pipeline-model-parallel size: 1",
            "------------------------ arguments ------------------------",
            f"  world_size ...................................... {world}",
        ]
    if framework == "deepspeed":
        return [
            f"[{clock.python(t)}] [INFO] [comm.py:658:init_distributed] Initializing TorchBackend in "
            "DeepSpeed with backend nccl"
        ]
    if framework in ("lightning", "nemo"):
        return [
            "-" * 100,
            "distributed_backend=nccl",
            f"All distributed processes registered. Starting with {world} processes",
            "-" * 100,
        ]
    if framework == "titan":
        return [
            f"[titan] {clock.python(t)} - root - INFO - Building 1-D device mesh with ['dp_shard'], [{world}]"
        ]
    return [f"{clock.python(t)} - train - INFO - world size {world}"]


def step_line(framework: str, step: int, t: float) -> str:
    """One completed step."""
    loss = 2.0 + 1.0 / (1 + step)
    if framework == "megatron":
        return (
            f" [{clock.seconds(t)}] iteration {step:8d}/  100000 | consumed samples: {step * 512:12d} | "
            "elapsed "
            f"time per iteration (ms): 9812.3 | throughput per GPU (TFLOP/s/GPU): 411.2 | learning rate: "
            f"1.2E-04 | global batch size:   512 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: "
            "0.412 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    if framework == "deepspeed":
        return (
            f"[{clock.python(t)}] [INFO] [logging.py:107:log_dist] [Rank 0] step={step}, skipped=0, "
            "lr=[0.00012], mom=[(0.9, 0.95)]"
        )
    if framework == "lightning":
        return (
            f"Epoch 0:  12%|█▏        | {step}/9000 [01:12<09:10, 0.10it/s, v_num=3, train_loss={loss:.3f}]"
        )
    if framework == "nemo":
        return (
            f"Training epoch 0, iteration {step}/99999 | lr: 1.2e-04 | global_batch_size: 512 | global_step: "
            f"{step} | reduced_train_loss: {loss:.4f} | train_step_timing in s: 9.81"
        )
    if framework == "titan":
        return (
            f"[titan] {clock.python(t)} - root - INFO - step: {step:4d}  loss: {loss:8.5f}  grad_norm:  "
            "0.4120  "
            "memory: 61.38GiB(77.42%)  tps: 3,412  tflops: 413.90  mfu: 41.85%"
        )
    return f"{clock.python(t)} - train - INFO - step {step} loss {loss:.4f}"
