#!/usr/bin/env bash
# A launch script with a gate: its own settings are those that the checklist was run with.
#
#     drill checklist run pretrain.yaml --env-from-script launch.sh
#     drill checklist sign pretrain.yaml --as "Your Name"
#     ./launch.sh
set -euo pipefail

export TORCH_FR_DUMP_TEMP_FILE=/shared/dumps/run42/rank_
export TORCH_FR_BUFFER_SIZE=20000
export TORCH_NCCL_ASYNC_ERROR_HANDLING=3
export NCCL_DEBUG=WARN

drill gate pretrain.yaml
exec torchrun --nproc-per-node 8 --log-dir /shared/logs/run42 --redirects 3 train.py
