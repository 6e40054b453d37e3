#!/bin/bash
#SBATCH -N 4
#SBATCH --tasks-per-node=24
#SBATCH --mem=120000
#SBATCH --time=600

srun --mpi=pmi2 -N $SLURM_NNODES --ntasks-per-node=24 nwchem in.nw > in.nwo
