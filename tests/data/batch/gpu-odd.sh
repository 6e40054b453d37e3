#!/bin/bash
#SBATCH -N2
#SBATCH --gpus=3
#SBATCH -t 5

srun nvidia-smi -L
