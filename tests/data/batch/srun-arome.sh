#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks=64
#SBATCH --cpus-per-task=4
#SBATCH --exclusive
#SBATCH --time=02:30:00
#SBATCH --wait-all-nodes=1
#SBATCH --switches=1@00:20:00

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export OMP_PLACES=cores
srun --cpu-bind=cores --distribution=block:cyclic -n $SLURM_NTASKS -c $SLURM_CPUS_PER_TASK ./MASTERODB
