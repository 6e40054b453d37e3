#!/bin/bash
#SBATCH -p gpu
#SBATCH -N 1
#SBATCH --gpus=2
#SBATCH --gpus-per-task=1
#SBATCH -n 2
#SBATCH --mem-per-gpu=16G

srun --gpus-per-task=1 --gres-flags=enforce-binding python3 -m hoomd run.py --mode=gpu
