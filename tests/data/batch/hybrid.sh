#!/bin/bash
#SBATCH --nodes=3
#SBATCH --tasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --threads-per-core=1
#SBATCH -m cyclic:block
#SBATCH --time=2:30:00

export OMP_PLACES=cores
srun ./hybrid
