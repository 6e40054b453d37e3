#!/bin/bash
#SBATCH --ntasks=4 --mem-per-cpu=1g
#SBATCH hetjob
#SBATCH --ntasks=2 --gres=gpu:1
srun --het-group=0,1 lmp -in in.lj
