#!/bin/bash
#SBATCH --gpus=1
#SBATCH --gpu-bind=map_gpu:0
#SBATCH --gpu-freq=high
#SBATCH --threads-per-core=1
apptainer exec --nv img.sif python train.py
