#!/bin/bash
#SBATCH -n 32
#SBATCH --mem-per-cpu=3G
#SBATCH --ntasks-per-core=1
#SBATCH -o julia.%j.%N.out

srun --mpi=pmi2 --cpu-bind=threads julia --project=. mpi.jl
