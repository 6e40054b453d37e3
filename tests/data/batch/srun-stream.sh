#!/bin/bash
#SBATCH --exclusive
#SBATCH -N1
#SBATCH -c 64
#SBATCH --mem=0
#SBATCH -n 1

export OMP_NUM_THREADS=64
srun -n1 -c64 --cpu-freq=high --cpu-bind=rank ./stream
