#!/bin/bash
#SBATCH --signal=B:TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time=24:00:00
#SBATCH --time-min=04:00:00

trap 'scontrol requeue $SLURM_JOB_ID' TERM
srun --signal=USR1@60 ./sim --restart &
wait
