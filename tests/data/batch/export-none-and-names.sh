#!/bin/bash -l
#SBATCH --job-name=diffusion
#SBATCH --export=NONE,TARGET,STEPS=200
#SBATCH --nodes 1 #
#SBATCH -c8 --mem=24G
#SBATCH --time=0-72:0:0
#SBATCH --mail-type=End,Fail
#SBATCH --mail-user=

srun --export=ALL ./design $TARGET
