#!/bin/bash
#SBATCH -N 2
#SBATCH -n 3

srun -n1 ./master : -n2 ./worker
