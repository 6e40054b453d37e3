#!/bin/bash
#SBATCH --gpus=4
#SBATCH --ntasks=4
#SBATCH --ntasks-per-gpu=1
#SBATCH --cpus-per-gpu=6
#SBATCH -A proj
#SBATCH --reservation=course

srun --ntasks-per-gpu=1 --gpu-bind=none python mnist.py
