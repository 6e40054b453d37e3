#!/bin/bash
#SBATCH -J amber
#SBATCH -N 2
#SBATCH --ntasks-per-node=32
#SBATCH -t 1-12:00:00
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=ann@example.org
#SBATCH --hint=nomultithread

module load amber
srun --mpi=pmi2 --hint=nomultithread pmemd.MPI -O -i md.in -o md.out -p top -c crd
