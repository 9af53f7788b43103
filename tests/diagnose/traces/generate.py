"""Kineto traces of a made-up GPU job: a transformer's steps on one rank, as torch.profiler writes them.

Generated, never recorded on a GPU: names, categories and arguments follow Kineto's output format; the times
are those of `Work`. One rank a file; ranks of one job agree only in what is given to them.
"""

import gzip
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

MAIN, AUTOGRAD, STREAM, NCCL_STREAM = 4100, 4177, 7, 20
START_US = 5_164_631_307_283.920

GEMM = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_nn_align8>(Params)",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false> >(Params)",
)
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >()"
)
COPY = "Memcpy DtoD (Device -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
LOGGING = "logging/__init__.py(1477): debug"
OCCUPANCY = {
    "registers per thread": 128,
    "shared memory": 49152,
    "blocks per SM": 7.757576,
    "warps per SM": 31.030304,
    "grid": [64, 16, 1],
    "block": [128, 1, 1],
    "est. achieved occupancy %": 24,
}


@dataclass(frozen=True)
class Work:
    """What one rank does in a step, in microseconds, and how often; `jitter` is a share of each duration."""

    layers: int = 4
    matrix_us: float = 2000.0
    other_us: float = 700.0
    recompute_us: float = 400.0
    transfer_us: float = 300.0
    wait_us: float = 20.0
    bubble_us: float = 150.0
    data_us: float = 60.0
    host_us: float = 200.0
    logging_us: float = 0.0
    mallocs: int = 0
    nelems: int = 1 << 20
    slow_kernel: float = 1.0
    jitter: float = 0.002


@dataclass
class Trace:
    """Events of one rank. `clock` is where the device is, microseconds from the start."""

    rank: int = 0
    seed: int = 0
    events: list[dict[str, object]] = field(default_factory=list)
    clock: float = 0.0
    correlation: int = 100
    sequence: int = 1

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}/{self.rank}")

    def add(self, cat: str, name: str, tid: object, at: float, us: float, **args: object) -> None:
        """One complete event."""
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": 0 if cat.startswith(("kernel", "gpu_")) else 4100,
                "tid": tid,
                "ts": round(START_US + at, 3),
                "dur": round(us, 3),
                "args": args,
            }
        )

    def launch(
        self, name: str, us: float, tid: int = MAIN, cat: str = "kernel", stream: int = STREAM, **args: object
    ) -> None:
        """A kernel right after what ran before, and the runtime call that started it."""
        self.correlation += 1
        call = {"kernel": "cudaLaunchKernel", "gpu_memcpy": "cudaMemcpyAsync"}[cat]
        ids = {"External id": self.correlation, "correlation": self.correlation}
        self.add("cuda_runtime", call, tid, self.clock - 4, 3, cbid=211, **ids)
        shape = {**ids, "queued": 0, "device": 0, "context": 1, "stream": stream, **OCCUPANCY}
        self.add(cat, name, stream, self.clock, us, **shape, **args)
        for phase, at, where in (("s", self.clock - 4, tid), ("f", self.clock, stream)):
            arrow = {
                "ph": phase,
                "id": self.correlation,
                "pid": 4100,
                "tid": where,
                "ts": round(START_US + at, 3),
            }
            self.events.append({**arrow, "cat": "ac2g", "name": "ac2g"})
        self.clock += us

    def varied(self, us: float, work: Work) -> float:
        """A duration with this step's jitter."""
        return us * (1 + work.jitter * self.random.uniform(-1, 1))

    def step(self, number: int, work: Work) -> None:
        """One training step: data, host work, forward, backward with recomputation, communication."""
        begin = self.clock
        vary = self.varied
        data = vary(work.data_us, work)
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self.add("user_annotation", loader, MAIN, self.clock, data)
        self.clock += data
        if work.logging_us:
            self.add("python_function", LOGGING, MAIN, self.clock, work.logging_us)
        for i in range(work.mallocs):
            name = "cudaMalloc" if i % 2 else "cudaFree"
            self.add("cuda_runtime", name, MAIN, self.clock + i, 0.9, cbid=22, correlation=7)
        self.clock += vary(work.host_us, work)
        for layer in range(work.layers):
            self._layer(layer, work)
        for layer in range(work.layers):
            self._backward(layer, work)
        p2p = {"Collective name": "send", "In msg nelems": 4096, "dtype": "BFloat16", "Group size": 2}
        self.launch(SEND_RECV, vary(work.bubble_us, work), stream=NCCL_STREAM, **p2p)
        meta = {
            "Collective name": "allreduce",
            "In msg nelems": work.nelems,
            "Out msg nelems": work.nelems,
            "dtype": "BFloat16",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Group size": 8,
        }
        # The first of two equal ones waits for a late rank, the second only transfers.
        half = vary(work.transfer_us / 2, work)
        self.launch(ALL_REDUCE, vary(work.wait_us, work) + half, stream=NCCL_STREAM, **meta)
        self.launch(ALL_REDUCE, half, stream=NCCL_STREAM, **meta)
        self.launch(COPY, vary(work.other_us / 10, work), cat="gpu_memcpy")
        self.add("user_annotation", f"ProfilerStep#{number}", MAIN, begin, self.clock - begin)

    def _layer(self, layer: int, work: Work) -> None:
        self.sequence += 1
        operation = {"Sequence number": self.sequence, "Fwd thread id": 0}
        self.add("cpu_op", "aten::linear", MAIN, self.clock - 8, 7, **operation)
        slow = work.slow_kernel if layer == 0 else 1.0
        self.launch(GEMM[layer % len(GEMM)], slow * self.varied(work.matrix_us / 2 / work.layers, work))
        self.launch(ELEMENTWISE, self.varied(work.other_us * 0.9 / work.layers, work))

    def _backward(self, layer: int, work: Work) -> None:
        """A checkpointed layer on autograd's thread: computed again, then its nested backward."""
        node = "CheckpointFunctionBackward"
        again = self.varied(work.recompute_us / work.layers, work)
        begin = self.clock - 20
        if again:
            self.launch(GEMM[layer % len(GEMM)], again, AUTOGRAD)
        nested = self.clock - 6
        self.launch(GEMM[layer % len(GEMM)], self.varied(work.matrix_us / 2 / work.layers, work), AUTOGRAD)
        name = "autograd::engine::evaluate_function: "
        args = {"Sequence number": layer, "Fwd thread id": 1}
        self.add("cpu_op", f"{name}AddmmBackward0", AUTOGRAD, nested, 4, **args)
        self.add("cpu_op", f"{name}{node}", AUTOGRAD, begin, nested + 5 - begin, **args)

    def document(self, world_size: int = 8) -> dict[str, object]:
        """The whole file."""
        ordered = sorted(self.events, key=lambda e: e["cat"] not in ("cpu_op", "user_annotation"))
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84978434048}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": world_size},
            "baseTimeNanoseconds": 1790857026000000000,
            "traceEvents": ordered,
        }


def generated(work: Work, rank: int = 0, steps: int = 6, seed: int = 0) -> Trace:
    """A trace of `steps` steps of the same work."""
    trace = Trace(rank=rank, seed=seed)
    trace.clock = 1000.0
    for number in range(steps):
        trace.step(number + 3, work)
    return trace


def write(path: Path, trace: Trace, world_size: int = 8) -> Path:
    """Write a trace, gzipped if its name ends so."""
    data = json.dumps(trace.document(world_size), indent=1).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def write_side(folder: Path, works: dict[int, Work], seed: int, world_size: int | None = None) -> Path:
    """One side of a comparison: a file for each rank."""
    size = world_size or len(works)
    for rank, work in works.items():
        write(folder / f"rank{rank}_trace.json", generated(work, rank, seed=seed), size)
    return folder
