#!/bin/bash
#SBATCH --array=1,3,5-7
#SBATCH --export=NONE
#SBATCH --get-user-env
#SBATCH --chdir=/tmp

module load tools
./run
