#!/bin/bash
#SBATCH --job-name="train model"
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:1
#SBATCH --cpus-per-task=12
#SBATCH --mem=64G
#SBATCH --time=1-00:00:00
#SBATCH --signal=SIGUSR1@90
#SBATCH --requeue

source ~/.bashrc
conda activate torch
export NCCL_DEBUG=INFO
srun -u python train.py --config cfg.yaml --workers $SLURM_CPUS_PER_TASK
