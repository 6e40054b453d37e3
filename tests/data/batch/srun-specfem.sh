#!/bin/bash
#SBATCH -N 4
#SBATCH --ntasks-per-node=16
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --export=NONE

export SLURM_EXPORT_ENV=ALL
srun --export=ALL --mpi=none bin/xspecfem3D
