#!/bin/bash
#SBATCH --ntasks=28
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=28
#SBATCH --mail-type=all
#SBATCH --mail-user=$USER@example.org

srun -n $SLURM_NTASKS python -m mpi4py sim.py
