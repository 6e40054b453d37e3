#!/bin/bash
#SBATCH -N 4
#SBATCH --ntasks-per-node=1
#SBATCH -t 10

srun --jobid=$SLURM_JOBID --nodes=1 --nodelist=$SLURMD_NODENAME hostname
srun --jobid $SLURM_JOB_ID bash -c 'nvidia-smi -L || true'
