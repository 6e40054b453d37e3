#!/bin/bash
#SBATCH -J wrf
#SBATCH -N 8
#SBATCH --ntasks-per-node=36
#SBATCH --cpus-per-task=1
#SBATCH -t 03:00:00
#SBATCH --partition=main
#SBATCH --mcs-label=x
#SBATCH --delay-boot=10

ulimit -s unlimited
srun --mpi=pmi2 --propagate=STACK,MEMLOCK --resv-ports --slurmd-debug=1 ./wrf.exe
