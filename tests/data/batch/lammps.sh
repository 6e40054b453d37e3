#!/bin/bash
#SBATCH -N2 -n 48
#SBATCH --cpu-freq=high
#SBATCH --acctg-freq=task=30
#SBATCH --profile=none

srun lmp -in in.lj
