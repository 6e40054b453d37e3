#!/bin/bash
#SBATCH -N 2
#SBATCH -n 8

export SLURM_NTASKS=4
srun ./four
unset SLURM_NTASKS
srun --nodes=1 --ntasks=2 ./two
