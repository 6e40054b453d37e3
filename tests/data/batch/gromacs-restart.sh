#!/bin/bash
#SBATCH -J "npt"
#SBATCH -N 2 --ntasks-per-node=32
#SBATCH --dependency=singleton
#SBATCH --requeue
#SBATCH -o npt.%j.log

srun mdrun_mpi -cpi state.cpt
