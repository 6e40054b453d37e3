#!/bin/bash
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=64
#SBATCH --account=neuro
#SBATCH --output=mpi-out.%j
#SBATCH --error=mpi-err.%j

export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun --cpu-bind=sockets --distribution=block:block:block python3 brunel.py
