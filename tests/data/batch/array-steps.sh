#!/bin/bash
#SBATCH -a 0-30:5,40,[50-52]
#SBATCH --mail-type=ARRAY_TASKS,FAIL
#SBATCH --kill-on-invalid-dep=yes

./run $SLURM_ARRAY_TASK_ID
