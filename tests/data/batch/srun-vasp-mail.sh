#!/bin/bash
#SBATCH --mail-type=BEGIN
#SBATCH --mail-type=END
#SBATCH --mail-user=me@example.org,you@example.org
#SBATCH -N 2
#SBATCH -n 64

srun --mpi=pmi2 --mail-type=END --mail-user=me@example.org vasp_std
