#!/bin/bash
#SBATCH --job-name="resnet 50"   # with a blank
#SBATCH -N 2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:a100:8
#SBATCH -c 6
#SBATCH --exclusive
#SBATCH -t 1-00:00:00
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=someone@example.org
#SBATCH -o logs/%j.out
#SBATCH -e logs/%j.err

srun python -u train.py --epochs 90
