#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH -t 5

srun --mpi=pmi2 -N2 -n2 --ntasks-per-node=1 --cpu-bind=map_cpu:0 osu_bw
srun --mpi=pmi2 -N2 -n2 -r0 osu_latency
