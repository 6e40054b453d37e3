#!/bin/bash
#SBATCH -N 1
#SBATCH -n 24
#SBATCH --hint=compute_bound

srun --hint=compute_bound -n 24 siesta < in.fdf > out.fdf
