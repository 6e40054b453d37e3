#!/bin/bash
#SBATCH --get-user-env=10L
#SBATCH --export=HOME,PATH,LANG=C
#SBATCH --chdir=/tmp
#SBATCH --input=/dev/null

env
