#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-gpu=2
#SBATCH --gpus=8
#SBATCH --cpus-per-task=4
#SBATCH --time=10:00

srun cp2k.psmp -i h2o.inp
