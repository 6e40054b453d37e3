#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=16
#SBATCH --distribution=block:block
#SBATCH --mem-bind=local

module purge
module load openmpi/4.1
srun --mpi=pmix_v3 --distribution=block:block ./xhpl
