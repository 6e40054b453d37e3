#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --hint=nomultithread
#SBATCH --distribution=block:cyclic
#SBATCH --ntasks-per-socket=1
export OMP_PLACES=cores
srun --cpu-bind=verbose,cores ./hybrid
