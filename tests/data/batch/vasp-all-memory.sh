#!/bin/bash
#SBATCH -N1 -n 4
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH -o vasp.%x-%j.out    # output
#SBATCH -e vasp.%x-%j.err    # error
ulimit -s unlimited
srun --cpu-bind=cores vasp_std
