#!/bin/bash
#SBATCH -n1
#SBATCH -c16
#SBATCH --hint=nomultithread
#SBATCH -t 45

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
./sum
