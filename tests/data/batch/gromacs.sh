#!/bin/bash
#SBATCH --job-name=md
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --gres-flags=enforce-binding
#SBATCH --time=24:00:00
#SBATCH --mail-type=ALL

srun gmx_mpi mdrun -deffnm prod -ntomp $SLURM_CPUS_PER_TASK -maxh 23.5
