#!/bin/bash
#SBATCH --array=1-100%10
#SBATCH --time=15
#SBATCH --mem=2G
#SBATCH --output=out/%A_%a.txt

python one.py "$SLURM_ARRAY_TASK_ID"
