#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --mem=16G
#SBATCH -c 4

srun singularity exec --nv -B /data:/data image.sif python train.py
