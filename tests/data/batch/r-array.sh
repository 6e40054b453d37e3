#!/bin/bash
#SBATCH --array=0-9%3
#SBATCH --output=R_%A_%a.out
#SBATCH --mem 2G
#SBATCH --time 30:00
Rscript sim.R $SLURM_ARRAY_TASK_ID
