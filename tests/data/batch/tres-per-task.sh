#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --tres-per-task=cpu:4,gres/gpu:1

srun ./bench
