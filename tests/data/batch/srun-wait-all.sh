#!/bin/bash
#SBATCH -N 4
#SBATCH --wait-all-nodes=1
#SBATCH --no-kill
#SBATCH --use-min-nodes

srun --wait=0 -W 120 -Q -X ./coupled
