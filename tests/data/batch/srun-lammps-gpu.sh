#!/bin/bash
#SBATCH -N 1
#SBATCH -n 4
#SBATCH --gpus-per-task=1
#SBATCH -c 6
#SBATCH -t 0-04:00
#SBATCH --gres-flags=disable-binding

srun -n 4 --cpus-per-task=6 --cpu-bind=verbose,cores lmp -k on g 1 -sf kk -in in.lj
