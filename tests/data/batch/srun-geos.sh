#!/bin/bash
#SBATCH --nodes=6
#SBATCH --ntasks=240
#SBATCH --ntasks-per-core=1
#SBATCH --distribution=plane=40
#SBATCH --time=12:00:00
#SBATCH --core-spec=2

srun -l -m plane=40 -K --mpi=pmi2 ./GEOSgcm.x
