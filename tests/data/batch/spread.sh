#!/bin/bash
#SBATCH -N 4
#SBATCH --spread-job
#SBATCH --contiguous
#SBATCH --oversubscribe

srun hostname
