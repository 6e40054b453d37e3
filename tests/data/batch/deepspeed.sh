#!/bin/bash
#SBATCH -p gpu
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-gpu=12
#SBATCH --mem-per-gpu=60G
#SBATCH --gpus-per-node=4
#SBATCH --constraint=a100
#SBATCH --switches=1@00:30:00
#SBATCH --wait-all-nodes=1

srun --kill-on-bad-exit=1 bash worker.sh
