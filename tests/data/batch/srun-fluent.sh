#!/bin/bash
#SBATCH -J fluent
#SBATCH -N 2
#SBATCH -n 48
#SBATCH --licenses=ansys:4
#SBATCH -t 24:00:00
#SBATCH --comment="needs a license"

FLUENTNODES=$(scontrol show hostnames $SLURM_JOB_NODELIST | tr '\n' ' ')
srun hostname -s > hosts.$SLURM_JOBID
fluent 3ddp -g -t$SLURM_NTASKS -cnf=hosts.$SLURM_JOBID -i run.jou
