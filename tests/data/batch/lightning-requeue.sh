#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=8
#SBATCH --mem=0
#SBATCH --signal=SIGUSR1@90
#SBATCH --open-mode=append
#SBATCH --time=0-02:00:00

srun python3 fit.py
