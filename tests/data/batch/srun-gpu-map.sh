#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-gpu=8
#SBATCH --gpu-bind=closest

srun --ntasks=4 --gpus-per-task=1 --cpu-bind=map_cpu:0,8,16,24 --gpu-bind=closest ./select.sh ./app
