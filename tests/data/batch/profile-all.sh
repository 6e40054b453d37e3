#!/bin/bash
#SBATCH --profile=all
#SBATCH --acctg-freq=energy=30,task=60
#SBATCH --thread-spec=1
#SBATCH --no-kill

srun ./long
