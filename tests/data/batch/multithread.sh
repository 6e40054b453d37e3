#!/bin/bash
#SBATCH --hint=multithread
#SBATCH -n 16
#SBATCH --ntasks-per-core=2

srun ./hyper
