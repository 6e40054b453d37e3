#!/bin/bash
#SBATCH -N 1
#SBATCH -n 8
#SBATCH --exclusive
#SBATCH --mem=0

for i in $(seq 1 8); do
    srun -N1 -n1 -c1 --exclusive --mem=2G ./work $i > $i.log 2>&1 &
done
wait
