#!/bin/bash
#SBATCH -N 16
#SBATCH --time=1:00:00
#SBATCH -C haswell
#SBATCH --qos=debug
#SBATCH -L SCRATCH

export OMP_PROC_BIND=true
srun -N 16 -n 64 -c 16 --cpu_bind=cores --mem-bind=local ./mini.x
