#!/bin/bash
#SBATCH --job-name=notebook
#SBATCH --output=jupyter-%J.log
#SBATCH --time=8:00:00
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --gpus=1
#SBATCH --gpu-bind=none

jupyter lab --no-browser --ip=$(hostname)
