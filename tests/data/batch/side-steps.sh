#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=2
#SBATCH --gpus-per-node=v100
#SBATCH --export=ALL,
#SBATCH --open-mode=a

srun --overlap --exact -n 1 -c 1 ./watch &
srun -m NoPack ./solve
srun --mpi=openmpi -n 2 ./old
