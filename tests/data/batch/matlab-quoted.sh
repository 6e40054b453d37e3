#!/bin/bash
#SBATCH --job-name='my matlab job'
#SBATCH --comment="project: x; y=1"
#SBATCH --export=NONE
#SBATCH --get-user-env
matlab -batch run
