#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=64
#SBATCH --distribution=block:block
#SBATCH --hint=nomultithread
#SBATCH --no-requeue

srun vasp_std
