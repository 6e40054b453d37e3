#!/bin/bash
#SBATCH -n 2
#SBATCH -c 8
#SBATCH --hint=multithread

srun --hint=nomultithread --cpu-bind=verbose,none -n 2 ./omp
srun --threads-per-core=1 -T 2 ./omp
