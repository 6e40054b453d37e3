#!/bin/bash
#SBATCH --array=[0-4]
#SBATCH -o %A-%4a.log

./run $SLURM_ARRAY_TASK_ID
