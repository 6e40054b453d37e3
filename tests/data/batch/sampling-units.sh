#!/bin/bash
#SBATCH -n 1 -c 16
#SBATCH --acctg-freq=task=30s,energy=30
#SBATCH --profile=task
#SBATCH --extra-node-info=1:*:*    # one socket that is free
#SBATCH --distribution=*:block:*   # and filled
#SBATCH -t 5-30:30:30
#SBATCH -o run.%A_%3a-%x.%N.out# where it goes

srun --cpu-bind=cores --mem-bind=local ./particles
