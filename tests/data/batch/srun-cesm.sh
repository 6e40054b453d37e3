#!/bin/bash
#SBATCH -N 8
#SBATCH --ntasks-per-node=128
#SBATCH --cpus-per-task=1
#SBATCH -q normal
#SBATCH -A climate
#SBATCH -p main
#SBATCH --constraint=cpu
#SBATCH --no-requeue

srun --label -n 1024 -c 2 --cpu_bind=cores ./cesm.exe >> cesm.log.$SLURM_JOB_ID 2>&1
