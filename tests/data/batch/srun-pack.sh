#!/bin/bash
#SBATCH -N 2
#SBATCH -n 8
#SBATCH -m cyclic,NoPack

srun -m block,Pack -n 4 ./a &
srun -m "*:cyclic" -n 4 ./b &
wait
