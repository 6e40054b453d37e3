#!/bin/bash
#SBATCH -N 3
#SBATCH -n 12
#SBATCH --export=ALL,OMP_NUM_THREADS=1
#SBATCH --open-mode=append

srun --export=ALL --nodes=3 --ntasks=12 --unbuffered dask-mpi --scheduler-file sched.json
