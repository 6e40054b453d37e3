#!/bin/bash
#SBATCH --ntasks=5
#SBATCH --cpus-per-task=6
#SBATCH --gres=gpu:4
#SBATCH --partition=gpu,gpu-long
#SBATCH --mem=180G
#SBATCH --error=run.err
#SBATCH --output=run.out
#SBATCH --open-mode=append

srun relion_refine_mpi --j 6 --gpu
