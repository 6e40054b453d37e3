#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-core=1
#SBATCH --ntasks-per-socket=8
#SBATCH --ntasks=64
#SBATCH --distribution=block:cyclic
#SBATCH --hint=compute_bound
#SBATCH --mem-bind=local

srun ./waves
