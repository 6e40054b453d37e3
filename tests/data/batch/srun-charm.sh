#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --threads-per-core=1

srun --mpi=none --kill-on-bad-exit=1 --cpu-bind=none ./charmrun ++local namd3 +p64 in.namd
