#!/bin/bash
#SBATCH -n 16
#SBATCH --distribution=cyclic
#SBATCH --ntasks-per-socket=4
#SBATCH --mem-per-cpu=1500M
#SBATCH -t 30

for n in 1 2 4 8 16; do
    srun -n $n --exclusive --distribution=cyclic:block ./clover_leaf > out.$n
done
