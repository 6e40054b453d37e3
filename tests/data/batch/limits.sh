#!/bin/bash
#SBATCH --propagate=STACK,MEMLOCK
#SBATCH --umask=0027
#SBATCH --tmp=20G
#SBATCH --mincpus=8

ulimit -a
