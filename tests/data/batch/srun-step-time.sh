#!/bin/bash
#SBATCH -N 2
#SBATCH -n 2
#SBATCH -t 60

srun -t 5 -n1 ./short
srun --time=0:30:00 --no-kill -N2 ./long
srun --immediate=10 -n1 ./now
