#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
#SBATCH --constraint=v100-32g
#SBATCH --hint=nomultithread
#SBATCH -A abc@v100

set -x -e
srun --wait=60 --kill-on-bad-exit=1 --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee -a main_log.txt
